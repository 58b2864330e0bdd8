import { expect, test } from 'vitest';
import type { Machine } from '../api/model';
import * as machines from './machines';
import { Values, commandLine, type Operation } from './operation';

const MACHINE: Machine = {
  name: 'web',
  state: 'running',
  cpus: 1,
  memory_bytes: 2 ** 30,
  is_own: true,
  is_emulated: false,
  disks: [
    { target: 'vda', kind: 'vhost-user', volume: 'web' },
    { target: 'vdb', kind: 'vhost-user', volume: 'data@monday' },
  ],
  volumes: ['web', 'data@monday'],
  has_serial_console: true,
  has_graphical_console: false,
};

type Filled = Record<string, string | boolean | string[]>;

function filledIn(operation: Operation, filled: Filled): Values {
  return Object.entries(filled).reduce(
    (before, [name, value]) => before.with(name, value),
    Values.of(operation.fields),
  );
}

function check(operation: Operation, filled: Filled, command: string, request: string) {
  const values = filledIn(operation, filled);
  const words = operation.command(values);
  expect(words === null ? null : commandLine(words)).toBe(command);
  const { method, path, body } = operation.request(values);
  expect(`${method} ${path}${body === undefined ? '' : ` ${JSON.stringify(body)}`}`).toBe(request);
}

function asked(operation: Operation, filled: Filled): string[] {
  const values = filledIn(operation, filled);
  return operation.fields.filter((it) => it.when?.(values) ?? true).map((it) => it.name);
}

test('a machine is created of a clone with what differs from the defaults', () => {
  check(
    machines.createMachine([]),
    { name: 'web', clone_of: 'golden@v1' },
    'memlane vm create web --clone golden@v1 --start',
    'POST /v1/machines {"name":"web","clone_of":"golden@v1","cpus":1,"memory":"1GiB","start":true}',
  );
  check(
    machines.createMachine([]),
    {
      ...{ name: 'web', clone_of: 'golden', count: '3', cpus: '2', memory: '256MiB' },
      ...{ networks: 'bridge', network_name: 'br0', protocol: 'nbd', graphics: true },
      ...{ kernel: 'vmlinuz', initrd: 'initrd', kernel_args: 'root=/dev/vda rw', start: false },
    },
    'memlane vm create web --clone golden --protocol nbd --count 3 --cpus 2 --memory 256MiB ' +
      '--network bridge=br0 --graphics --kernel vmlinuz --initrd initrd ' +
      "--kernel-args 'root=/dev/vda rw'",
    'POST /v1/machines {"name":"web","clone_of":"golden","kernel":"vmlinuz","count":3,"cpus":2,' +
      '"memory":"256MiB","networks":[{"bridge":"br0"}],"protocol":"nbd","initrd":"initrd",' +
      '"kernel_args":"root=/dev/vda rw","graphics":true}',
  );
});

test('a machine is created on a volume, or on an empty one with an installer', () => {
  check(
    machines.createMachine([]),
    { name: 'web', source: 'volume', volume: 'db', clone_of: 'golden', count: '3', start: false },
    'memlane vm create web --volume db',
    'POST /v1/machines {"name":"web","volume":"db","cpus":1,"memory":"1GiB"}',
  );
  check(
    machines.createMachine([]),
    { name: 'desk', source: 'size', size: '20GiB', cdrom: 'debian.iso', networks: 'user' },
    'memlane vm create desk --size 20GiB --cdrom debian.iso --network user --start',
    'POST /v1/machines {"name":"desk","size":"20GiB","cdrom":"debian.iso","cpus":1,' +
      '"memory":"1GiB","networks":["user"],"start":true}',
  );
});

test('what cloud-init is told is sent as it was typed, and a file of the command', () => {
  check(
    machines.createMachine([]),
    { name: 'web', clone_of: 'golden', user_data: '#cloud-config\n', network_config: 'v: 2\n' },
    'memlane vm create web --clone golden --user-data user-data.yaml ' +
      '--network-config network-config.yaml --start',
    'POST /v1/machines {"name":"web","clone_of":"golden","cpus":1,"memory":"1GiB",' +
      '"user_data":"#cloud-config\\n","network_config":"v: 2\\n","start":true}',
  );
});

test('only what goes with what was chosen is asked for, and sent', () => {
  const create = machines.createMachine([]);
  expect(asked(create, {})).not.toContain('volume');
  expect(asked(create, { source: 'volume' })).not.toContain('count');
  expect(asked(create, { networks: 'user' })).not.toContain('network_name');
  expect(asked(create, { networks: 'network' })).toContain('network_name');
  expect(asked(create, {})).not.toContain('initrd');
  expect(asked(create, { kernel: 'vmlinuz' })).toContain('initrd');
  check(
    create,
    { name: 'web', clone_of: 'golden', initrd: 'initrd', network_config: 'v: 2', start: false },
    'memlane vm create web --clone golden',
    'POST /v1/machines {"name":"web","clone_of":"golden","cpus":1,"memory":"1GiB"}',
  );
});

test('a machine is started, shut down, forced off and snapshotted', () => {
  check(machines.startMachine('web'), {}, 'memlane vm start web', 'POST /v1/machines/web/start');
  check(
    machines.shutDownMachine('web'),
    {},
    'memlane vm stop web',
    'POST /v1/machines/web/shut-down',
  );
  check(machines.forceMachineOff('web'), {}, 'memlane vm kill web', 'POST /v1/machines/web/kill');
  check(
    machines.snapshotMachine('web'),
    { snapshot: 'monday', needs_freeze: true },
    'memlane vm snapshot web monday --freeze',
    'POST /v1/machines/web/snapshot {"snapshot":"monday","needs_freeze":true}',
  );
});

test('disks are attached and detached', () => {
  check(
    machines.attachDisk(MACHINE, []),
    { volume: 'data' },
    'memlane vm attach web data',
    'POST /v1/machines/web/attach {"volume":"data"}',
  );
  check(
    machines.attachDisk(MACHINE, []),
    { volume: 'data', protocol: 'nbd' },
    'memlane vm attach web data --protocol nbd',
    'POST /v1/machines/web/attach {"volume":"data","protocol":"nbd"}',
  );
  check(
    machines.detachDisk('web', 'data'),
    {},
    'memlane vm detach web data',
    'POST /v1/machines/web/detach {"volume":"data"}',
  );
  const [volume] = machines.attachDisk(MACHINE, ['web', 'data']).fields;
  expect(volume?.kind === 'text' && volume.suggestions).toEqual(['data']);
});

test('a machine that is deleted names what is lost with it and asks for its name', () => {
  const operation = machines.deleteMachine(MACHINE);
  check(operation, {}, 'memlane vm delete web', 'DELETE /v1/machines/web');
  check(
    operation,
    { volumes: true },
    'memlane vm delete web --with-volumes',
    'DELETE /v1/machines/web?volumes=delete',
  );
  expect(operation.nameToType).toBe('web');
  expect(operation.losses?.length).toBe(1);
  expect(operation.furtherLosses?.(filledIn(operation, {}))).toEqual([]);
  // A snapshot that is a disk is not deleted with the machine.
  expect(operation.furtherLosses?.(filledIn(operation, { volumes: true }))).toEqual([
    'The volume web with all its data.',
  ]);
});
