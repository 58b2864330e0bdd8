/** What can be done to snapshots, and copies of volumes. */
import { path } from '../api/calls';
import type { Snapshot } from '../api/model';
import { time } from '../format';
import { texts } from '../texts';
import type { Operation } from './operation';
import { overruling } from './volumes';

const words = texts.snapshots;

/** Of `volume`, and of others at the same instant. */
export function createSnapshot(volume: string, others: string[]): Operation {
  return {
    title: words.createTitle(volume),
    button: words.create,
    explanation: words.createExplanation,
    fields: [
      {
        kind: 'text',
        name: 'snapshot',
        label: words.name,
        hint: words.nameHint,
        required: true,
      },
      {
        kind: 'many',
        name: 'others',
        label: words.others,
        hint: words.othersHint,
        value: [],
        choices: others.map((name) => ({ value: name, label: name })),
      },
    ],
    request: (values) => ({
      method: 'POST',
      path: '/v1/snapshots',
      body: { volumes: [volume, ...values.many('others')], snapshot: values.text('snapshot') },
    }),
    command: (values) => [
      ...['snapshot', 'create'],
      ...[volume, ...values.many('others')].map((name) => `${name}@${values.text('snapshot')}`),
    ],
    done: (values) => words.created(values.text('snapshot')),
  };
}

/** `source` is a volume, or VOLUME@SNAPSHOT. */
export function clone(source: string): Operation {
  return {
    title: words.cloneTitle(source),
    button: words.clone,
    explanation: words.cloneExplanation,
    fields: [
      {
        kind: 'text',
        name: 'name',
        label: words.cloneName,
        hint: texts.volumes.nameHint,
        required: true,
      },
    ],
    request: (values) => ({
      method: 'POST',
      path: path`/v1/volumes/${source}/clone`,
      body: { name: values.text('name') },
    }),
    command: (values) => ['clone', source, values.text('name')],
    done: (values) => words.cloned(source, values.text('name')),
  };
}

export function restoreSnapshot(snapshot: Snapshot, owner: string | null = null): Operation {
  return {
    title: words.restoreTitle(snapshot.name),
    button: words.restore,
    fields: overruling(owner),
    losses: [words.restoreLoses(snapshot.volume, time(snapshot.created_unix_seconds))],
    nameToType: snapshot.volume,
    request: (values) => ({
      method: 'POST',
      path:
        path`/v1/snapshots/${snapshot.name}/restore` + (values.check('force') ? '?force=true' : ''),
    }),
    command: (values) => [
      ...['snapshot', 'restore', snapshot.name],
      ...(values.check('force') ? ['--force'] : []),
    ],
    done: () => words.restored(snapshot.volume, snapshot.snapshot),
  };
}

export function renameSnapshot(snapshot: Snapshot): Operation {
  return {
    title: words.renameTitle(snapshot.name),
    button: words.rename,
    fields: [
      {
        kind: 'text',
        name: 'snapshot',
        label: words.newName,
        hint: words.nameHint,
        value: snapshot.snapshot,
        required: true,
      },
    ],
    request: (values) => ({
      method: 'PATCH',
      path: path`/v1/snapshots/${snapshot.name}`,
      body: { snapshot: values.text('snapshot') },
    }),
    command: (values) => ['snapshot', 'rename', snapshot.name, values.text('snapshot')],
    done: (values) => words.renamed(snapshot.name, values.text('snapshot')),
  };
}

export function deleteSnapshot(snapshot: Snapshot): Operation {
  return {
    title: words.deleteTitle(snapshot.name),
    button: words.delete,
    fields: [],
    losses: [words.deleteLoses(snapshot.volume, time(snapshot.created_unix_seconds))],
    nameToType: snapshot.name,
    request: () => ({ method: 'DELETE', path: path`/v1/snapshots/${snapshot.name}` }),
    command: () => ['snapshot', 'delete', snapshot.name],
    done: () => words.deleted(snapshot.name),
  };
}
