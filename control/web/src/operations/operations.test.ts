import { expect, test } from 'vitest';
import type {
  GroupDetails,
  Image,
  Pool,
  Project,
  Snapshot,
  Task,
  Token,
  TopicDetails,
  User,
  Volume,
} from '../api/model';
import * as access from './access';
import * as groups from './groups';
import * as images from './images';
import * as several from './many';
import { Values, commandLine, commandLines, curl, quoted, type Operation } from './operation';
import * as snapshots from './snapshots';
import * as topics from './topics';
import * as volumes from './volumes';

const VOLUME: Volume = {
  name: 'db',
  id: 1,
  size_bytes: 2 ** 30,
  sector_bytes: 512,
  reduction: 'full',
  durability: 'ram',
  capacity: 'thin',
  mirror: 'yes',
  written_bytes: 4096,
  fill_bytes: 0,
  ram_bytes: 4096,
  ratio: 1,
  device: null,
  nbd_uri: null,
  nbd_connections: 0,
  ring_clients: 0,
  users: [],
  owner: null,
  labels: {},
};

const SNAPSHOT: Snapshot = {
  name: 'db@monday',
  volume: 'db',
  snapshot: 'monday',
  id: 2,
  created_unix_seconds: 0,
  size_bytes: 2 ** 30,
  sector_bytes: 512,
  written_bytes: 4096,
  device: null,
  nbd_uri: null,
  nbd_connections: 0,
  ring_clients: 0,
};

const IMAGE: Image = {
  number: 7,
  saved_unix_seconds: 0,
  label: '',
  stored_bytes: 4096,
  volumes: [{ name: 'db', size_bytes: 2 ** 30, durability: 'image' }],
  lost_bytes: 0,
  failure: null,
};

const TOPIC: TopicDetails = {
  name: 'orders',
  volume: 'topic.orders',
  partition_count: 2,
  durability: 'ram',
  size_bytes: 0,
  records_in: 0,
  records_out: 0,
  settings: {},
  partitions: [],
};

const GROUP: GroupDetails = {
  group: 'billing',
  state: 'Empty',
  type: 'classic',
  member_count: 0,
  resets: 'allowed',
  topics: [
    {
      topic: 'orders',
      partition_count: 2,
      lag: 6,
      partitions: [
        { partition: 0, committed_offset: 4, start_offset: 2, end_offset: 10, lag: 6 },
        { partition: 1, committed_offset: 3, start_offset: 0, end_offset: 3, lag: 0 },
      ],
    },
  ],
};

type Filled = Record<string, string | boolean | string[]>;

function check(operation: Operation, filled: Filled, command: string | null, request: string) {
  const values = Object.entries(filled).reduce(
    (before, [name, value]) => before.with(name, value),
    Values.of(operation.fields),
  );
  const words = operation.command(values);
  expect(words === null ? null : commandLine(words)).toBe(command);
  const { method, path, body } = operation.request(values);
  expect(`${method} ${path}${body === undefined ? '' : ` ${JSON.stringify(body)}`}`).toBe(request);
}

test('a volume is created with what differs from the defaults', () => {
  check(
    volumes.createVolume(),
    { name: 'db', size: '1GiB' },
    'memlane volume create db --size 1GiB',
    'POST /v1/volumes {"name":"db","size":"1GiB","durability":"ram","reduction":"full","capacity":"thin","sector_bytes":512}',
  );
  check(
    volumes.createVolume(),
    { name: 'db', size: '1GiB', durability: 'journal', mirror: 'no', sector_bytes: '4096' },
    'memlane volume create db --size 1GiB --durability journal --mirror no --sector 4096',
    'POST /v1/volumes {"name":"db","size":"1GiB","durability":"journal","reduction":"full","capacity":"thin","mirror":"no","sector_bytes":4096}',
  );
});

test('a record is produced as it was typed', () => {
  const partitions = [0, 1].map((partition) => {
    return { partition, start_offset: 0, end_offset: 0, size_bytes: 0 };
  });
  const operation = topics.produceRecord({ ...TOPIC, partitions });
  const columns = 'key, value, headers';
  const headers = '{"trace":"a:b","empty":""}';
  check(
    operation,
    { key: 'a', value: " it's\n", headers: 'trace: a:b\n\nempty:', partition: '1' },
    `memlane sql -c ${quoted(`INSERT INTO "orders" (${columns}, partition) VALUES ('a', ' it''s\n', '${headers}', 1)`)}`,
    `POST /console/v1/topics/orders/records {"key":"a","value":" it's\\n","headers":${headers},"partition":1}`,
  );
  check(
    operation,
    { delete: true, value: 'unused' },
    `memlane sql -c 'INSERT INTO "orders" (${columns}) VALUES (NULL, NULL, NULL)'`,
    'POST /console/v1/topics/orders/records {"key":null,"value":null,"headers":{},"partition":null}',
  );
  const field = operation.fields.find(({ name }) => name === 'headers');
  const problem = (text: string) => field?.problem?.(Values.of([]).with('headers', text));
  expect(problem('a: 1\nb: 2')).toBe('');
  expect(problem('a: 1\nno colon')).toContain('no colon');
  expect(problem('a: 1\na: 2')).toContain('twice');
});

test('offsets are reset to each kind of place, and what becomes of the group is said', () => {
  const operation = groups.resetOffsets(GROUP);
  const offsets = 'POST /console/v1/groups/billing/offsets';
  const consequences = (filled: Record<string, string>): string[] => {
    const values = Object.entries(filled).reduce(
      (before, [name, value]) => before.with(name, value),
      Values.of(operation.fields),
    );
    return operation.furtherLosses?.(values) ?? [];
  };
  check(
    operation,
    {},
    'memlane group reset billing --to earliest',
    `${offsets} {"to":"earliest","topics":[]}`,
  );
  const forgotten = 'The committed offsets of 2 partitions';
  expect(consequences({})).toEqual([forgotten, '5 offsets will be read again']);
  check(
    operation,
    { to: 'latest', topic: 'orders' },
    'memlane group reset billing --to latest --topic orders',
    `${offsets} {"to":"latest","topics":["orders"]}`,
  );
  const skipped = '6 offsets will be skipped';
  expect(consequences({ to: 'latest' })).toEqual([forgotten, skipped]);
  check(
    operation,
    { to: 'offset', offset: '5' },
    'memlane group reset billing --to 5',
    `${offsets} {"to":"offset","offset":5,"topics":[]}`,
  );
  const nearest = consequences({ to: 'offset', offset: '1' });
  expect(nearest).toEqual([forgotten, '4 offsets will be read again']);
  check(
    operation,
    { to: 'time', time: '1970-01-01T00:00:01Z' },
    'memlane group reset billing --to 1970-01-01T00:00:01Z',
    `${offsets} {"to":"time","time_ms":1000,"topics":[]}`,
  );
  expect(consequences({ to: 'time' })).toEqual([forgotten]);
  for (const [name, good, bad] of [
    ['offset', '17', ['1.5', '-1', '1e3', '9'.repeat(20)]],
    ['time', '2026-11-22T18:00:00.5Z', ['yesterday', '2026-11-22', '2026-13-22T18:00:00Z']],
  ] as const) {
    const field = operation.fields.find((it) => it.name === name);
    const problem = (text: string) => field?.problem?.(Values.of([]).with(name, text));
    expect(problem(good)).toBe('');
    for (const text of bad) expect(problem(text), text).not.toBe('');
  }
});

test('a volume is resized, renamed and set', () => {
  check(
    volumes.resizeVolume(VOLUME),
    { size: '512MiB', force: true },
    'memlane volume resize db --size 512MiB --force',
    'PATCH /v1/volumes/db {"size":"512MiB","force":true}',
  );
  check(
    volumes.renameVolume(VOLUME),
    { name: 'old' },
    'memlane volume rename db old',
    'PATCH /v1/volumes/db {"name":"old"}',
  );
  check(
    volumes.setVolume(VOLUME, true),
    { reduction: 'none', users: 'alice, 1000' },
    'memlane volume set db reduction=none users=alice,1000',
    'PATCH /v1/volumes/db {"reduction":"none","users":["alice","1000"]}',
  );
  check(volumes.setVolume(VOLUME, true), {}, null, 'PATCH /v1/volumes/db {}');
});

test('a volume is attached, exported, disconnected and deleted', () => {
  check(
    volumes.attachVolume('db'),
    { as: 'loop', share: true },
    'memlane attach db --as loop --share',
    'POST /v1/attachments {"volume":"db","as":"loop","share":true}',
  );
  check(
    volumes.exportVolume('db'),
    { queues: '2', owner: 'libvirt-qemu' },
    'memlane export vhost-user db --queues 2 --owner libvirt-qemu',
    'POST /v1/exports {"volume":"db","protocol":"vhost-user","queues":2,"owner":"libvirt-qemu"}',
  );
  check(
    volumes.disconnectVolume(VOLUME),
    {},
    'memlane volume disconnect db',
    'POST /v1/volumes/db/disconnect',
  );
  check(
    volumes.deleteVolume({ ...VOLUME, nbd_connections: 1 }, 0),
    { force: true },
    'memlane volume delete db --force',
    'DELETE /v1/volumes/db?force=true',
  );
});

test('what belongs to somebody is taken from them when that is asked for', () => {
  const owned: Volume = { ...VOLUME, owner: 'memlane-broker', labels: { team: 'shop' } };
  check(
    volumes.deleteVolume(owned, 0),
    { force: true },
    'memlane volume delete db --force',
    'DELETE /v1/volumes/db?force=true',
  );
  expect(volumes.deleteVolume(owned, 0).losses?.join()).toContain('memlane-broker');
  check(
    volumes.renameVolume(owned),
    { name: 'old', force: true },
    'memlane volume rename db old --force',
    'PATCH /v1/volumes/db {"name":"old","force":true}',
  );
  check(
    snapshots.restoreSnapshot(SNAPSHOT, owned.owner),
    { force: true },
    'memlane snapshot restore db@monday --force',
    'POST /v1/snapshots/db%40monday/restore?force=true',
  );
  expect(volumes.labelsOf(owned)).toEqual(['team=shop']);
});

test('snapshots are taken of several volumes at once, cloned, restored and deleted', () => {
  check(
    snapshots.createSnapshot('db', ['wal', 'logs']),
    { snapshot: 'monday', others: ['wal'] },
    'memlane snapshot create db@monday wal@monday',
    'POST /v1/snapshots {"volumes":["db","wal"],"snapshot":"monday"}',
  );
  check(
    snapshots.clone('db@monday'),
    { name: 'db-test' },
    'memlane clone db@monday db-test',
    'POST /v1/volumes/db%40monday/clone {"name":"db-test"}',
  );
  check(
    snapshots.restoreSnapshot(SNAPSHOT),
    {},
    'memlane snapshot restore db@monday',
    'POST /v1/snapshots/db%40monday/restore',
  );
  check(
    snapshots.deleteSnapshot(SNAPSHOT),
    {},
    'memlane snapshot delete db@monday',
    'DELETE /v1/snapshots/db%40monday',
  );
});

test('images are saved, restored and deleted', () => {
  check(
    images.saveImage([VOLUME]),
    { label: 'before upgrade', also: ['db'] },
    "memlane image save db --label 'before upgrade'",
    'POST /v1/images {"label":"before upgrade","also":["db"]}',
  );
  check(
    images.restoreImage(IMAGE),
    { volumes: ['db'], name: 'db-old' },
    'memlane image restore --image 7 db --as db-old',
    'POST /v1/images/7/restore {"volumes":["db"],"name":"db-old"}',
  );
  check(images.deleteImage(IMAGE), {}, 'memlane image delete 7', 'DELETE /v1/images/7');
});

test('tasks are cancelled and the pool is resized', () => {
  const task = { id: 3, kind: 'image_save', subject: 'image 7' } as Task;
  check(images.cancelTask(task), {}, 'memlane task cancel 3', 'DELETE /v1/tasks/3');
  const pool = { max_memory_bytes: 2 ** 30, capacity_bytes: 2 ** 31 } as Pool;
  check(
    images.resizePool(pool),
    {},
    'memlane pool set max-memory=1GiB',
    'PATCH /v1/pool {"max_memory":"1GiB"}',
  );
});

test('what destroys something names it and asks for a name', () => {
  const user: User = {
    name: 'eve',
    role: 'viewer',
    projects: [],
    disabled: false,
    second_factor: false,
    etag: 'a1',
  };
  const project: Project = {
    name: 'shop',
    prefix: 'shop-',
    quota_bytes: null,
    quota_volumes: 100,
    etag: 'b2',
  };
  const token = { id: 't1', name: 'ci' } as Token;
  const destructive = [
    volumes.deleteVolume(VOLUME, 2),
    volumes.acceptLoss('db'),
    snapshots.restoreSnapshot(SNAPSHOT),
    snapshots.deleteSnapshot(SNAPSHOT),
    images.deleteImage(IMAGE),
    access.deleteUser(user),
    access.deleteProject(project),
    access.deleteToken(token),
  ];
  for (const operation of destructive) {
    expect(operation.losses?.length ?? 0).toBeGreaterThan(0);
    expect(operation.nameToType ?? '').not.toBe('');
  }
});

test('a change sends what differs alone, and names what was looked at', () => {
  const user: User = {
    name: 'eve',
    role: 'viewer',
    projects: [],
    disabled: true,
    second_factor: false,
    etag: 'a1',
  };
  const change = access.changeUser(user, []);
  const values = Values.of(change.fields).with('role', 'operator');
  expect(change.request(values)).toEqual({
    method: 'PATCH',
    path: '/console/v1/users/eve',
    ifMatch: 'a1',
    body: { role: 'operator' },
  });
});

test('a token has no more rights than who makes it', () => {
  const [, role] = access.createToken('operator', []).fields;
  expect(role?.kind === 'select' && role.choices.map((it) => it.value)).toEqual([
    'viewer',
    'operator',
  ]);
});

test('words are quoted as a shell reads them back', () => {
  expect(quoted('db@monday')).toBe('db@monday');
  expect(quoted("it's; rm -rf /")).toBe(`'it'\\''s; rm -rf /'`);
});

test('passwords are not shown in the call', () => {
  const request = {
    method: 'POST',
    path: '/console/v1/users',
    body: { password: 'x1y2' },
  } as const;
  expect(curl(request, 'https://host')).not.toContain('x1y2');
});

test('several volumes have a request each, and one confirmation that counts them', () => {
  const two = [VOLUME, { ...VOLUME, name: 'my wal', id: 9 }];
  const deletion = several.deleteVolumes(two);
  const steps = deletion.each?.(Values.of([])) ?? [];
  expect(steps.map(({ request }) => `${request.method} ${request.path}`)).toEqual([
    'DELETE /v1/volumes/db',
    'DELETE /v1/volumes/my%20wal',
  ]);
  expect(commandLines(steps)).toBe(`memlane volume delete db; memlane volume delete 'my wal'`);
  expect([deletion.nameToType, deletion.losses]).toEqual([
    '2 volumes',
    ['2 volumes, with 8.00 KiB of data.', 'db, my wal'],
  ]);
  const many = Array.from({ length: 12 }, (_, index) => ({ ...VOLUME, name: `v${index}` }));
  expect(several.deleteVolumes(many).losses?.[1]).toMatch(/^v0, .*, v9 and 2 more$/);
  const snapshot = several.snapshotVolumes(two);
  const taken = snapshot.each?.(Values.of([]).with('snapshot', 'now')) ?? [];
  expect(taken.map(({ name, request }) => [name, request.body])).toEqual([
    ['db@now', { volumes: ['db'], snapshot: 'now' }],
    ['my wal@now', { volumes: ['my wal'], snapshot: 'now' }],
  ]);
});

test('several topics are deleted by one confirmation that names them and who reads them', () => {
  const two = [TOPIC, { ...TOPIC, name: 'my log', size_bytes: 4096 }];
  const group = { group: 'billing', state: 'Empty', member_count: 0, topics: [] };
  const reads = { ...group, topics: [{ topic: 'my log', partition_count: 1, lag: 0 }] };
  const deletion = several.deleteTopics(two, [{ ...group, group: 'other' }, reads]);
  const steps = deletion.each?.(Values.of([])) ?? [];
  expect(steps.map(({ request }) => `${request.method} ${request.path}`)).toEqual([
    'DELETE /console/v1/topics/orders',
    'DELETE /console/v1/topics/my%20log',
  ]);
  expect(commandLines(steps)).toBe(`memlane topic delete orders; memlane topic delete 'my log'`);
  expect([deletion.nameToType, deletion.losses]).toEqual([
    '2 topics',
    [
      '2 topics and 4.00 KiB of records.',
      'orders, my log',
      'Committed offsets of the groups billing.',
    ],
  ]);
  const one = topics.deleteTopic(TOPIC, [reads]);
  expect([one.nameToType, one.losses?.length]).toEqual(['orders', 1]);
});
