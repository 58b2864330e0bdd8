/** Texts of the overview and of its charts. */
import { bytesPerSecond, duration } from '../format';
import type { Outlook } from '../forecast';
import { many } from './many';

export const overview = {
  memory: 'Where the memory is',
  memoryText: (size: string): string => `The pool has ${size}. Each byte is counted once.`,
  part: 'Part',
  memoryColumn: 'Memory',
  share: 'Share',
  parts: {
    contents: 'Contents',
    maps: 'Maps of volumes',
    index: 'Dedup index',
    tables: 'Tables',
    slack: 'Slack',
    guaranteed: 'Free, promised to guaranteed volumes',
    free: 'Free',
  },
  partHints: {
    contents: 'pages of 4 KiB, shared and compressed ones counted once',
    maps: 'which page each block of a volume holds',
    index: 'what equal pages are found by',
    tables: 'superblocks, tables and counts',
    slack: 'free slots beside used ones',
    guaranteed: 'set aside and not used yet',
    free: 'for new data',
  },
  total: 'The whole pool',
  daemonMemory: 'The daemon itself, outside of the pool',
  reduction: 'What reduction saves',
  reductionText: (written: string, stored: string): string =>
    `${written} of contents lie in ${stored} of pages.`,
  nothingWritten: 'Nothing is written yet.',
  saved: {
    patterns: 'Repeats one value, takes no memory',
    shared: 'Shared or compressed away',
    stored: 'Stored in pages',
    pending: 'of these, not looked at for compression yet',
  },
  forWhom: 'For whom',
  volume: 'Volume',
  written: 'Written',
  ram: 'Memory',
  saves: 'Saves',
  ratio: 'Ratio',
  capacity: 'Capacity',
  fill: (passed: number | null, trend: 'unknown' | 'steady' | 'filling'): string => {
    if (passed !== null) return `past ${passed} %`;
    return { unknown: 'room left', steady: 'steady', filling: 'filling' }[trend];
  },
  usedOf: (used: string, size: string): string => `${used} of ${size} used`,
  promised: (size: string): string => `${size} of what is free are promised to guaranteed volumes.`,
  outlook: (outlook: Outlook): string => {
    switch (outlook.kind) {
      case 'unknown':
        return 'The daemon has seen too little yet to say.';
      case 'steady':
        return 'It does not fill at present.';
      case 'filling': {
        const rate = bytesPerSecond(outlook.bytesPerSecond);
        const from =
          outlook.volumes.length > 0 ? `, mostly from ${outlook.volumes.join(', ')}` : '';
        return `Full in ${duration(outlook.fullInSeconds)} if it goes on like this: ${rate}${from}.`;
      }
    }
  },
  powerLoss: 'If power failed now',
  powerLossNothing: 'Nothing',
  nothingAtRisk: 'nothing at risk',
  atRiskNow: 'at risk now',
  wouldBeLost: 'would be lost',
  atRisk: {
    ram: 'everything in volumes of this class',
    image: 'what was written since the last image',
    journal: 'what was written and not flushed yet',
  },
  holdUp: (seconds: number, saved: string, speed: string): string =>
    `Saving takes ${duration(seconds)}: ${saved} at ${speed}. Power has to hold that long.`,
  holdUpUnknown: 'The duration of a save is unknown: no image was saved and no rehearsal run yet.',
  warnings: 'Warnings',
  health: (warnings: number): string =>
    warnings === 0 ? 'all is well' : many(warnings, 'warning', 'warnings'),
  requests: 'Requests to volumes',
  perSecond: 'each second',
  busy: 'in use',
  idle: 'idle',
  requestKind: 'Kind',
  half: 'half within',
  most: '99 % within',
  busiest: 'Busiest volumes',
  slowest: 'Slowest volumes',
  bytes: 'Bytes',
  noRequests: 'No requests at present.',
  topics: 'Topics',
  notSetUp: 'not set up',
  asking: 'asking…',
  noAnswer: 'no answer',
  lagging: (groups: number): string => `${many(groups, 'group', 'groups')} behind`,
  upToDate: 'no group is behind',
  noLag: 'Each group has read all there is.',
  behindBy: 'Records behind',
  noBroker: 'This console knows no broker. It is started with --broker where one runs.',
  brokerDown: 'The broker has not answered since this page was opened.',
  topicsText: (count: number): string => many(count, 'topic', 'topics'),
  groupsText: (count: number): string => many(count, 'group', 'groups'),
  noMachines:
    'This console knows no virtual machines. It is started with --machines-socket where memlane-machines runs.',
  crashed: (count: number): string => `${count} crashed`,
  noneCrashed: 'none crashed',
  runningText: (count: number): string => `${count} running`,
  ofMachines: (count: number): string => `of ${many(count, 'machine', 'machines')}`,
  activity: 'Activity',
  range: 'Time',
  ranges: { live: 'Last 5 minutes', hour: 'Last hour', hours: 'Last 6 hours', day: 'Last day' },
  noHistory: 'Nothing was recorded yet.',
  daemonFacts: 'Daemon',
  version: 'Version',
  upFor: 'Up for',
  volumesText: (count: number): string => many(count, 'volume', 'volumes'),
  snapshotsText: (count: number): string => many(count, 'snapshot', 'snapshots'),
  clients: 'Clients',
  clientsText: (nbd: number, ring: number, machines: number): string =>
    `${nbd} by NBD, ${ring} by ring, ${many(machines, 'machine', 'machines')}`,
};

export const warnings = {
  /** What mends a warning, by its kind: where to go, and what for. */
  actions: {
    pool_filling: 'Give the pool more memory',
    overwrites_uncovered: 'Give the pool more memory',
    pool_memory_missing: 'Look at the pool',
    journal_failing: 'Look at the journal',
    journal_slow: 'Look at the journal',
    journal_disk_full: 'Look at the journal',
    journal_gone: 'Look at the journal',
    image_failed: 'Save an image again',
    image_unreachable: 'Look at the images',
    image_object_missing: 'Look at the images',
    image_key_previous: 'Save an image',
    image_retention_failed: 'Look at the images',
    blocks_lost: 'Restore from an image',
    pool_damaged: 'Save an image',
    attachment_failed: 'Look at the volumes',
    device_dead: 'Look at the volumes',
    export_failed: 'Look at the volumes',
  } as Record<string, string>,
};

export const charts = {
  iops: 'Requests per second',
  throughput: 'Throughput',
  latency: 'Latency',
  reduction: 'Reduction: written for each byte that it takes',
  memory: 'Memory of the pool',
  other: 'Others',
  time: 'Time',
  noPoints: 'No points in this time.',
  latest: 'Latest',
  lowest: 'Lowest',
  highest: 'Highest',
  series: 'Series',
  hidden: 'The table below says the same.',
  rows: (count: number): string => `The newest ${many(count, 'point', 'points')}, the newest first`,
};
