/** What can be done to virtual machines. */
import { path, type Request } from '../api/calls';
import type {
  Machine,
  MachineCreate,
  MachineNetwork,
  MachineSnapshot,
  MachinesCreated,
} from '../api/model';
import { texts } from '../texts';
import type { Choice, Field, Operation, SelectField, Values } from './operation';

const words = texts.machines;
const DEFAULTS = { protocol: 'vhost-user', cpus: 1, memory: '1GiB', size: '20GiB' } as const;
/** Files that a command reads, which are typed here. */
const FILES = { user_data: 'user-data.yaml', network_config: 'network-config.yaml' } as const;
/** Guests are waited for, and the disks of many machines are made. */
const SLOW_TIME_LIMIT_MS = 120_000;

type Source = keyof typeof words.sources;

function choices(labels: Record<string, string>): Choice[] {
  return Object.entries(labels).map(([value, label]) => ({ value, label }));
}

function isFrom(...sources: Source[]): (values: Values) => boolean {
  return (values) => sources.some((source) => values.text('source') === source);
}

function has(name: string): (values: Values) => boolean {
  return (values) => values.text(name) !== '';
}

function protocolField(): SelectField {
  return {
    kind: 'select',
    name: 'protocol',
    label: words.protocol,
    hint: words.protocolHint,
    value: DEFAULTS.protocol,
    choices: choices(words.protocols),
  };
}

function diskFields(volumes: readonly string[]): Field[] {
  const volume = { kind: 'text', required: true, suggestions: volumes } as const;
  return [
    {
      kind: 'select',
      name: 'source',
      label: words.source,
      hint: words.sourceHint,
      value: 'clone_of' satisfies Source,
      choices: choices(words.sources),
    },
    {
      ...volume,
      name: 'clone_of',
      label: words.template,
      hint: words.templateHint,
      when: isFrom('clone_of'),
    },
    {
      ...volume,
      name: 'volume',
      label: words.volume,
      hint: words.volumeHint,
      when: isFrom('volume'),
    },
    {
      kind: 'text',
      name: 'size',
      label: words.size,
      hint: words.sizeHint,
      value: DEFAULTS.size,
      required: true,
      when: isFrom('size'),
    },
    { kind: 'text', name: 'cdrom', label: words.cdrom, hint: words.cdromHint },
    {
      kind: 'number',
      name: 'count',
      label: words.count,
      hint: words.countHint,
      when: isFrom('clone_of', 'size'),
    },
  ];
}

function guestFields(): Field[] {
  return [
    {
      kind: 'number',
      name: 'cpus',
      label: words.cpus,
      hint: words.cpusHint,
      value: String(DEFAULTS.cpus),
      required: true,
    },
    {
      kind: 'text',
      name: 'memory',
      label: words.memory,
      hint: words.memoryHint,
      value: DEFAULTS.memory,
      required: true,
    },
    {
      kind: 'select',
      name: 'networks',
      label: words.network,
      hint: words.networkHint,
      value: 'none',
      choices: choices(words.networks),
    },
    {
      kind: 'text',
      name: 'network_name',
      label: words.networkName,
      hint: words.networkNameHint,
      required: true,
      when: (values) => ['network', 'bridge'].includes(values.text('networks')),
    },
    { kind: 'lines', name: 'user_data', label: words.userData, hint: words.userDataHint },
    {
      kind: 'check',
      name: 'graphics',
      label: words.graphics,
      hint: words.graphicsHint,
      value: false,
    },
    { kind: 'check', name: 'start', label: words.startAtOnce, value: true },
  ];
}

function advancedFields(): Field[] {
  const isAdvanced = true;
  return [
    { ...protocolField(), isAdvanced },
    { kind: 'text', name: 'kernel', label: words.kernel, hint: words.kernelHint, isAdvanced },
    {
      kind: 'text',
      name: 'initrd',
      label: words.initrd,
      hint: words.initrdHint,
      when: has('kernel'),
      isAdvanced,
    },
    {
      kind: 'text',
      name: 'kernel_args',
      label: words.kernelArgs,
      hint: words.kernelArgsHint,
      when: has('kernel'),
      isAdvanced,
    },
    {
      kind: 'lines',
      name: 'network_config',
      label: words.networkConfig,
      hint: words.networkConfigHint,
      when: has('user_data'),
      isAdvanced,
    },
  ];
}

function networkOf(values: Values): MachineNetwork | null {
  const name = values.text('network_name');
  switch (values.text('networks')) {
    case 'user':
      return 'user';
    case 'network':
      return { network: name };
    case 'bridge':
      return { bridge: name };
    default:
      return null;
  }
}

function networkText(network: MachineNetwork): string {
  if (typeof network === 'string') return network;
  return 'network' in network ? `network=${network.network}` : `bridge=${network.bridge}`;
}

/** What was filled in of some texts; a name that nothing was said for is left out. */
function given<Name extends keyof MachineCreate>(
  values: Values,
  ...names: Name[]
): Partial<Record<Name, string>> {
  const known = names.filter((name) => values.text(name) !== '');
  return Object.fromEntries(known.map((name) => [name, values.text(name)])) as Partial<
    Record<Name, string>
  >;
}

/** A machine as it was filled in, with what differs from the defaults. */
function machineOf(values: Values): MachineCreate {
  const source = values.text('source') as Source;
  const network = networkOf(values);
  const isOne = source === 'volume' || values.text('count') === '';
  const hasKernel = values.text('kernel') !== '';
  const hasUserData = values.text('user_data') !== '';
  const protocol = values.text('protocol');
  return {
    name: values.text('name'),
    ...given(values, source, 'cdrom', 'kernel'),
    ...(isOne ? {} : { count: Number(values.text('count')) }),
    cpus: Number(values.text('cpus')),
    memory: values.text('memory'),
    ...(network === null ? {} : { networks: [network] }),
    ...(protocol === 'nbd' ? { protocol } : {}),
    ...(hasKernel ? given(values, 'initrd', 'kernel_args') : {}),
    // Blanks and the end of the last line are a part of a file.
    ...(hasUserData ? { user_data: values.exactly('user_data') } : {}),
    ...(hasUserData && values.text('network_config') !== ''
      ? { network_config: values.exactly('network_config') }
      : {}),
    ...(values.check('graphics') ? { graphics: true } : {}),
    ...(values.check('start') ? { start: true } : {}),
  };
}

function option(name: string, value: unknown): string[] {
  return value === undefined || value === null ? [] : [`--${name}`, String(value)];
}

function flag(name: string, isSet: boolean | undefined): string[] {
  return isSet === true ? [`--${name}`] : [];
}

function createCommand(machine: MachineCreate): string[] {
  const { cpus, memory } = machine;
  return [
    ...['vm', 'create', machine.name],
    ...option('volume', machine.volume),
    ...option('clone', machine.clone_of),
    ...option('size', machine.size),
    ...option('protocol', machine.protocol),
    ...option('cdrom', machine.cdrom),
    ...option('count', machine.count),
    ...(cpus === DEFAULTS.cpus ? [] : option('cpus', cpus)),
    ...(memory === DEFAULTS.memory ? [] : option('memory', memory)),
    ...(machine.networks ?? []).flatMap((it) => option('network', networkText(it))),
    ...flag('graphics', machine.graphics),
    ...option('user-data', machine.user_data === undefined ? null : FILES.user_data),
    ...option('network-config', machine.network_config === undefined ? null : FILES.network_config),
    ...option('kernel', machine.kernel),
    ...option('initrd', machine.initrd),
    ...option('kernel-args', machine.kernel_args),
    ...flag('start', machine.start),
  ];
}

/** `volumes` are those that a disk can be made of. */
export function createMachine(volumes: readonly string[]): Operation {
  return {
    title: words.create,
    button: words.create,
    explanation: words.createExplanation,
    fields: [
      { kind: 'text', name: 'name', label: words.name, hint: words.nameHint, required: true },
      ...diskFields(volumes),
      ...guestFields(),
      ...advancedFields(),
    ],
    request: (values) => ({
      method: 'POST',
      path: '/v1/machines',
      body: machineOf(values),
      timeLimitMs: SLOW_TIME_LIMIT_MS,
    }),
    command: (values) => createCommand(machineOf(values)),
    done: (_values, answer) => {
      const { machines, warnings } = answer as MachinesCreated;
      return words.created(
        machines.map((it) => it.name),
        warnings,
      );
    },
  };
}

function post(name: string, what: string, body?: unknown): Request {
  const request = { method: 'POST', path: path`/v1/machines/${name}` + `/${what}` } as const;
  return body === undefined ? request : { ...request, body };
}

export function startMachine(name: string): Operation {
  return {
    title: words.startTitle(name),
    button: words.start,
    explanation: words.startExplanation,
    fields: [],
    request: () => post(name, 'start'),
    command: () => ['vm', 'start', name],
    done: () => words.started(name),
  };
}

export function shutDownMachine(name: string): Operation {
  return {
    title: words.shutDownTitle(name),
    button: words.shutDown,
    explanation: words.shutDownExplanation,
    fields: [],
    request: () => post(name, 'shut-down'),
    command: () => ['vm', 'stop', name],
    done: () => words.shuttingDown(name),
  };
}

export function forceMachineOff(name: string): Operation {
  return {
    title: words.forceOffTitle(name),
    button: words.forceOff,
    fields: [],
    losses: [words.forceOffLoses(name)],
    request: () => post(name, 'kill'),
    command: () => ['vm', 'kill', name],
    done: () => words.forcedOff(name),
  };
}

export function deleteMachine(machine: Machine): Operation {
  // Snapshots that are disks are not the machine's.
  const volumes = machine.volumes.filter((volume) => !volume.includes('@'));
  const withVolumes: Field = {
    kind: 'check',
    name: 'volumes',
    label: words.withVolumes,
    hint: words.withVolumesHint,
    value: false,
  };
  return {
    title: words.deleteTitle(machine.name),
    button: words.delete,
    fields: volumes.length > 0 ? [withVolumes] : [],
    losses: [words.deleteLoses(machine.name)],
    furtherLosses: (values) =>
      values.check('volumes') ? volumes.map(words.deleteLosesVolume) : [],
    nameToType: machine.name,
    request: (values) => ({
      method: 'DELETE',
      path: path`/v1/machines/${machine.name}` + (values.check('volumes') ? '?volumes=delete' : ''),
      timeLimitMs: SLOW_TIME_LIMIT_MS,
    }),
    command: (values) => [
      ...['vm', 'delete', machine.name],
      ...flag('with-volumes', values.check('volumes')),
    ],
    done: () => words.deleted(machine.name),
  };
}

export function attachDisk(machine: Machine, volumes: readonly string[]): Operation {
  const { name } = machine;
  const protocol = (values: Values) =>
    values.text('protocol') === DEFAULTS.protocol ? null : values.text('protocol');
  return {
    title: words.attachTitle(name),
    button: words.attach,
    explanation: words.attachExplanation,
    fields: [
      {
        kind: 'text',
        name: 'volume',
        label: words.volume,
        hint: words.attachVolumeHint,
        required: true,
        suggestions: volumes.filter((volume) => !machine.volumes.includes(volume)),
      },
      protocolField(),
    ],
    request: (values) => {
      const it = protocol(values);
      const volume = values.text('volume');
      return post(name, 'attach', { volume, ...(it === null ? {} : { protocol: it }) });
    },
    command: (values) => [
      ...['vm', 'attach', name, values.text('volume')],
      ...option('protocol', protocol(values)),
    ],
    done: (values) => words.attached(values.text('volume'), name),
  };
}

export function detachDisk(name: string, volume: string): Operation {
  return {
    title: words.detachTitle(volume, name),
    button: words.detach,
    explanation: words.detachExplanation,
    fields: [],
    request: () => ({ ...post(name, 'detach', { volume }), timeLimitMs: SLOW_TIME_LIMIT_MS }),
    command: () => ['vm', 'detach', name, volume],
    done: () => words.detached(volume, name),
  };
}

export function snapshotMachine(name: string): Operation {
  return {
    title: words.snapshotTitle(name),
    button: words.snapshot,
    explanation: words.snapshotExplanation,
    fields: [
      {
        kind: 'text',
        name: 'snapshot',
        label: words.snapshotName,
        hint: words.snapshotNameHint,
        required: true,
      },
      {
        kind: 'check',
        name: 'needs_freeze',
        label: words.needsFreeze,
        hint: words.needsFreezeHint,
        value: false,
      },
    ],
    request: (values) =>
      post(name, 'snapshot', {
        snapshot: values.text('snapshot'),
        ...(values.check('needs_freeze') ? { needs_freeze: true } : {}),
      }),
    command: (values) => [
      ...['vm', 'snapshot', name, values.text('snapshot')],
      ...flag('freeze', values.check('needs_freeze')),
    ],
    done: (_values, answer) => {
      const { snapshots, warnings } = answer as MachineSnapshot;
      return words.snapshotTaken(snapshots, warnings);
    },
  };
}
