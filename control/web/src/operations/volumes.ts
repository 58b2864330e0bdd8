/** What can be done to volumes. */
import { path } from '../api/calls';
import type { Attachment, Export, Volume } from '../api/model';
import { bytes, exactBytes } from '../format';
import { texts } from '../texts';
import type { Choice, Field, Operation, Values } from './operation';

const words = texts.volumes;
const DEFAULTS = {
  sector: '512',
  reduction: 'full',
  durability: 'ram',
  capacity: 'thin',
  mirror: 'yes',
};

function choices(labels: Record<string, string>): Choice[] {
  return Object.entries(labels).map(([value, label]) => ({ value, label }));
}

function settingFields(volume: {
  durability: string;
  reduction: string;
  capacity: string;
  mirror: string;
}): Field[] {
  return [
    {
      kind: 'select',
      name: 'durability',
      label: words.durability,
      hint: words.durabilityHint,
      value: volume.durability,
      choices: choices(words.durabilities),
    },
    {
      kind: 'select',
      name: 'reduction',
      label: words.reduction,
      hint: words.reductionHint,
      value: volume.reduction,
      choices: choices(words.reductions),
    },
    {
      kind: 'select',
      name: 'capacity',
      label: words.capacity,
      hint: words.capacityHint,
      value: volume.capacity,
      choices: choices(words.capacities),
    },
    {
      kind: 'select',
      name: 'mirror',
      label: words.mirror,
      hint: words.mirrorHint,
      value: volume.mirror,
      choices: choices(words.mirrors),
      isAdvanced: true,
    },
  ];
}

/** Asks whether the owner of a volume is to be overruled, where it has one. */
export function overruling(owner: string | null | undefined): Field[] {
  return owner
    ? [
        {
          kind: 'check',
          name: 'force',
          label: words.overrule(owner),
          hint: words.overruleHint,
          value: false,
        },
      ]
    : [];
}

/** The labels of a volume, each as the command line writes it. */
export function labelsOf(volume: Volume): string[] {
  return Object.entries(volume.labels).map(([key, text]) => `${key}=${text}`);
}

export function createVolume(prefix = ''): Operation {
  return {
    title: words.create,
    button: words.create,
    explanation: words.createExplanation,
    fields: [
      {
        kind: 'text',
        name: 'name',
        label: words.name,
        hint: words.nameHint,
        value: prefix,
        required: true,
      },
      {
        kind: 'text',
        name: 'size',
        label: words.size,
        hint: words.sizeHint,
        value: '10GiB',
        required: true,
      },
      ...settingFields(DEFAULTS),
      {
        kind: 'select',
        name: 'sector_bytes',
        label: words.sector,
        hint: words.sectorHint,
        value: DEFAULTS.sector,
        choices: choices(words.sectors),
      },
    ],
    request: (values) => ({
      method: 'POST',
      path: '/v1/volumes',
      body: {
        name: values.text('name'),
        size: values.text('size'),
        durability: values.text('durability'),
        reduction: values.text('reduction'),
        capacity: values.text('capacity'),
        ...(values.text('mirror') === DEFAULTS.mirror ? {} : { mirror: values.text('mirror') }),
        sector_bytes: Number(values.text('sector_bytes')),
      },
    }),
    command: (values) => [
      ...['volume', 'create', values.text('name'), '--size', values.text('size')],
      ...unlessDefault('--durability', values.text('durability'), DEFAULTS.durability),
      ...unlessDefault('--reduction', values.text('reduction'), DEFAULTS.reduction),
      ...unlessDefault('--capacity', values.text('capacity'), DEFAULTS.capacity),
      ...unlessDefault('--mirror', values.text('mirror'), DEFAULTS.mirror),
      ...unlessDefault('--sector', values.text('sector_bytes'), DEFAULTS.sector),
    ],
    done: (values) => words.created(values.text('name')),
  };
}

export function resizeVolume(volume: Volume): Operation {
  return {
    title: words.resizeTitle(volume.name),
    button: words.resize,
    explanation: words.resizeExplanation,
    fields: [
      {
        kind: 'text',
        name: 'size',
        label: words.newSize,
        hint: words.sizeHint,
        value: exactBytes(volume.size_bytes),
        required: true,
      },
      {
        kind: 'check',
        name: 'force',
        label: words.dropPastEnd,
        hint: words.dropPastEndHint,
        value: false,
      },
    ],
    request: (values) => ({
      method: 'PATCH',
      path: path`/v1/volumes/${volume.name}`,
      body: { size: values.text('size'), ...(values.check('force') ? { force: true } : {}) },
    }),
    command: (values) => [
      ...['volume', 'resize', volume.name, '--size', values.text('size')],
      ...(values.check('force') ? ['--force'] : []),
    ],
    done: (values) => words.resized(volume.name, values.text('size')),
  };
}

export function renameVolume(volume: Volume): Operation {
  return {
    title: words.renameTitle(volume.name),
    button: words.rename,
    explanation: words.renameExplanation,
    fields: [
      {
        kind: 'text',
        name: 'name',
        label: words.newName,
        hint: words.nameHint,
        value: volume.name,
        required: true,
      },
      ...overruling(volume.owner),
    ],
    request: (values) => ({
      method: 'PATCH',
      path: path`/v1/volumes/${volume.name}`,
      body: { name: values.text('name'), ...(values.check('force') ? { force: true } : {}) },
    }),
    command: (values) => [
      ...['volume', 'rename', volume.name, values.text('name')],
      ...(values.check('force') ? ['--force'] : []),
    ],
    done: (values) => words.renamed(volume.name, values.text('name')),
  };
}

/** Users of the host are for those who see all of it. */
export function setVolume(volume: Volume, seesAll: boolean): Operation {
  const changed = (values: Values): [string, string][] => {
    const settings: [string, string][] = [
      ['durability', volume.durability],
      ['reduction', volume.reduction],
      ['capacity', volume.capacity],
      ['mirror', volume.mirror],
    ];
    return settings
      .filter(([name, before]) => values.text(name) !== before)
      .map(([name]) => [name, values.text(name)]);
  };
  const usersField: Field = {
    kind: 'text',
    name: 'users',
    label: words.users,
    hint: words.usersHint,
    value: volume.users.join(', '),
  };
  const usersChanged = (values: Values): boolean =>
    seesAll && values.list('users').join() !== volume.users.join();
  return {
    title: words.setTitle(volume.name),
    button: words.set,
    explanation: words.setExplanation,
    fields: [...settingFields(volume), ...(seesAll ? [usersField] : [])],
    request: (values) => ({
      method: 'PATCH',
      path: path`/v1/volumes/${volume.name}`,
      body: {
        ...Object.fromEntries(changed(values)),
        ...(usersChanged(values) ? { users: values.list('users') } : {}),
      },
    }),
    command: (values) => {
      const settings = changed(values).map(([name, value]) => `${name}=${value}`);
      if (usersChanged(values)) settings.push(`users=${values.list('users').join(',')}`);
      return settings.length > 0 ? ['volume', 'set', volume.name, ...settings] : null;
    },
    done: () => words.wasSet(volume.name),
  };
}

export function deleteVolume(volume: Volume, snapshots: number): Operation {
  const inUse = volume.nbd_connections + volume.ring_clients > 0;
  return {
    title: words.deleteTitle(volume.name),
    button: words.delete,
    fields: volume.owner
      ? overruling(volume.owner)
      : inUse
        ? [
            {
              kind: 'check',
              name: 'force',
              label: words.forceDelete,
              hint: words.forceDeleteHint,
              value: false,
            },
          ]
        : [],
    losses: [
      words.losesContents(bytes(volume.written_bytes)),
      ...(snapshots > 0 ? [words.hasSnapshots(snapshots)] : []),
      ...(volume.device ? [words.hasDevice(volume.device)] : []),
      ...(volume.owner ? [words.ownerLoses(volume.owner)] : []),
      ...(inUse ? [words.hasClients(volume.nbd_connections + volume.ring_clients)] : []),
    ],
    nameToType: volume.name,
    request: (values) => ({
      method: 'DELETE',
      path: path`/v1/volumes/${volume.name}` + (values.check('force') ? '?force=true' : ''),
    }),
    command: (values) => [
      ...['volume', 'delete', volume.name],
      ...(values.check('force') ? ['--force'] : []),
    ],
    done: () => words.deleted(volume.name),
  };
}

export function disconnectVolume(volume: Volume): Operation {
  return {
    title: words.disconnectTitle(volume.name),
    button: words.disconnect,
    explanation: words.disconnectExplanation,
    fields: [],
    request: () => ({ method: 'POST', path: path`/v1/volumes/${volume.name}/disconnect` }),
    command: () => ['volume', 'disconnect', volume.name],
    done: () => words.disconnected(volume.name),
  };
}

export function attachVolume(name: string): Operation {
  return {
    title: words.attachTitle(name),
    button: words.attach,
    explanation: words.attachExplanation,
    fields: [
      {
        kind: 'select',
        name: 'as',
        label: words.driver,
        hint: words.driverHint,
        value: 'auto',
        choices: choices(words.drivers),
      },
      { kind: 'check', name: 'share', label: words.share, hint: words.shareHint, value: false },
    ],
    request: (values) => ({
      method: 'POST',
      path: '/v1/attachments',
      body: {
        volume: name,
        as: values.text('as'),
        ...(values.check('share') ? { share: true } : {}),
      },
    }),
    command: (values) => [
      ...['attach', name],
      ...unlessDefault('--as', values.text('as'), 'auto'),
      ...(values.check('share') ? ['--share'] : []),
    ],
    done: (_values, answer) => words.attached(name, (answer as Attachment).device ?? ''),
  };
}

export function detachVolume(name: string, device: string): Operation {
  return {
    title: words.detachTitle(name),
    button: words.detach,
    explanation: words.detachExplanation(device),
    fields: [],
    request: () => ({ method: 'DELETE', path: path`/v1/attachments/${name}` }),
    command: () => ['detach', name],
    done: () => words.detached(name),
  };
}

export function exportVolume(name: string): Operation {
  const optional = (values: Values, key: string): [string, string][] => {
    return values.text(key) === '' ? [] : [[key, values.text(key)]];
  };
  return {
    title: words.exportTitle(name),
    button: words.export,
    explanation: words.exportExplanation,
    fields: [
      { kind: 'number', name: 'queues', label: words.queues, hint: words.queuesHint },
      { kind: 'text', name: 'owner', label: words.owner, hint: words.ownerHint },
      { kind: 'text', name: 'group', label: words.group, hint: words.groupHint },
      { kind: 'text', name: 'mode', label: words.mode, hint: words.modeHint },
      { kind: 'check', name: 'share', label: words.share, hint: words.shareHint, value: false },
    ],
    request: (values) => ({
      method: 'POST',
      path: '/v1/exports',
      body: {
        volume: name,
        protocol: 'vhost-user',
        ...(values.text('queues') === '' ? {} : { queues: Number(values.text('queues')) }),
        ...Object.fromEntries(['owner', 'group', 'mode'].flatMap((key) => optional(values, key))),
        ...(values.check('share') ? { share: true } : {}),
      },
    }),
    command: (values) => [
      ...['export', 'vhost-user', name],
      ...['queues', 'owner', 'group', 'mode'].flatMap((key) =>
        optional(values, key).flatMap(([option, value]) => [`--${option}`, value]),
      ),
      ...(values.check('share') ? ['--share'] : []),
    ],
    done: (_values, answer) => words.exported(name, (answer as Export).socket ?? ''),
  };
}

export function deleteExport(exported: Export): Operation {
  const force: Field = {
    kind: 'check',
    name: 'force',
    label: words.forceUnexport,
    hint: words.forceUnexportHint,
    value: false,
  };
  return {
    title: words.unexportTitle(exported.volume),
    button: words.unexport,
    explanation: words.unexportExplanation,
    fields: exported.connected ? [force] : [],
    request: (values) => ({
      method: 'DELETE',
      path: path`/v1/exports/${exported.volume}` + (values.check('force') ? '?force=true' : ''),
    }),
    command: (values) => [
      ...['export', 'delete', exported.volume],
      ...(values.check('force') ? ['--force'] : []),
    ],
    done: () => words.unexported(exported.volume),
  };
}

export function acceptLoss(name: string): Operation {
  return {
    title: words.acceptLossTitle(name),
    button: words.acceptLoss,
    fields: [],
    losses: [words.acceptLossLoses(name)],
    nameToType: name,
    request: () => ({ method: 'POST', path: path`/v1/volumes/${name}/accept-loss` }),
    command: () => ['image', 'accept-loss', name],
    done: () => words.lossAccepted(name),
  };
}

function unlessDefault(option: string, value: string, standard: string): string[] {
  return value === standard ? [] : [option, value];
}
