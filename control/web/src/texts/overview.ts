/** Texts of the overview and of its charts. */
import type { MirrorState, StandbyState } from '../api/model';
import { bytesPerSecond, duration } from '../format';
import type { Outlook } from '../forecast';
import { many } from './many';

export const overview = {
  memory: 'Memory by use',
  memoryText: (size: string): string => `The pool has ${size}; each byte is counted once.`,
  part: 'Use',
  memoryColumn: 'Memory',
  share: 'Share',
  parts: {
    contents: 'Contents',
    maps: 'Maps of volumes',
    index: 'Dedup index',
    tables: 'Tables',
    slack: 'Slack',
    guaranteed: 'Reserved for guaranteed volumes',
    free: 'Free',
  },
  partHints: {
    contents: 'data in pages, after deduplication and compression',
    maps: 'the page of each block of each volume',
    index: 'finds pages with equal contents',
    tables: 'superblocks, volume table, reference counts',
    slack: 'free slots in slabs that are in use (fragmentation)',
    guaranteed: 'free, but only for these volumes',
    free: 'for new data',
  },
  total: 'Pool',
  daemonMemory: 'Daemon process, outside the pool',
  reduction: 'Data reduction',
  reductionText: (written: string, stored: string): string =>
    `${written} written are stored in ${stored} of pages.`,
  nothingWritten: 'No data has been written yet.',
  saved: {
    patterns: 'Zeros and other fill patterns, without memory',
    shared: 'Saved by deduplication and compression',
    stored: 'Stored in pages',
    pending: 'of these, not yet tried to compress',
  },
  forWhom: 'By volume',
  volume: 'Volume',
  written: 'Written',
  ram: 'Memory',
  saves: 'Saved',
  ratio: 'Ratio',
  capacity: 'Capacity',
  fill: (passed: number | null, trend: 'unknown' | 'steady' | 'filling'): string => {
    if (passed !== null) return `past ${passed} %`;
    return { unknown: 'space left', steady: 'steady', filling: 'filling' }[trend];
  },
  usedOf: (used: string, size: string): string => `${used} of ${size} used`,
  promised: (size: string): string =>
    `${size} of the free memory is reserved for guaranteed volumes.`,
  outlook: (outlook: Outlook): string => {
    switch (outlook.kind) {
      case 'unknown':
        return 'Too early for a forecast: the daemon needs some minutes of data.';
      case 'steady':
        return 'Usage is not growing.';
      case 'filling': {
        const rate = bytesPerSecond(outlook.bytesPerSecond);
        const from =
          outlook.volumes.length > 0 ? `, mostly from ${outlook.volumes.join(', ')}` : '';
        return `Full in ${duration(outlook.fullInSeconds)} at the current ${rate}${from}.`;
      }
    }
  },
  powerLoss: 'If power failed now',
  powerLossNothing: 'Nothing',
  nothingAtRisk: 'nothing at risk',
  atRiskNow: 'at risk now',
  wouldBeLost: 'would be lost',
  atRisk: {
    ram: 'all data of these volumes',
    image: 'writes since the last image',
    journal: 'writes not flushed yet',
  },
  holdUp: (seconds: number, saved: string, speed: string): string =>
    `Saving an image takes ${duration(seconds)} (${saved} at ${speed}); a UPS must last that long.`,
  lastImage: (age: string): string => `Last image: ${age} ago.`,
  holdUpUnknown: 'The time to save an image is unknown until this daemon saves or rehearses one.',
  warnings: 'Warnings',
  moreWarnings: (count: number): string => `Show ${many(count, 'more warning', 'more warnings')}`,
  health: (warnings: number): string =>
    warnings === 0 ? 'healthy' : many(warnings, 'warning', 'warnings'),
  requests: 'Requests to volumes',
  perSecond: 'per second',
  busy: 'in use',
  idle: 'idle',
  requestKind: 'Kind',
  half: 'p50',
  most: 'p99',
  busiest: 'Busiest volumes',
  slowest: 'Slowest volumes',
  bytes: 'Bytes',
  noRequests: 'No requests.',
  topics: 'Topics',
  notSetUp: 'not set up',
  asking: 'loading…',
  noAnswer: 'no answer',
  lagging: (groups: number): string => `${many(groups, 'group', 'groups')} behind`,
  upToDate: 'no lag',
  noLag: 'All groups are up to date.',
  behindBy: 'Lag in records',
  noBroker: 'No broker is configured. Start memlane-console with --broker.',
  brokerDown: 'The broker has not answered since this page was opened.',
  topicsText: (count: number): string => many(count, 'topic', 'topics'),
  groupsText: (count: number): string => many(count, 'group', 'groups'),
  noMachines: 'Not configured. Start memlane-console with --machines-socket.',
  crashed: (count: number): string => `${count} crashed`,
  noneCrashed: 'none crashed',
  runningText: (count: number): string => `${count} running`,
  ofMachines: (count: number): string => `of ${many(count, 'machine', 'machines')}`,
  activity: 'Activity',
  range: 'Time range',
  ranges: { live: 'Last 5 minutes', hour: 'Last hour', hours: 'Last 6 hours', day: 'Last day' },
  noHistory: 'No data has been recorded yet.',
  daemonFacts: 'Daemon',
  version: 'Version',
  upFor: 'Up for',
  volumesText: (count: number): string => many(count, 'volume', 'volumes'),
  snapshotsText: (count: number): string => many(count, 'snapshot', 'snapshots'),
  standby: (state: StandbyState, lag: string | null): string => {
    switch (state) {
      case 'waiting':
        return 'Standby: the image store has no image yet.';
      case 'fetching':
        return 'Standby: the newest image is being fetched.';
      case 'failing':
        return 'Standby: the image store cannot be followed.';
      case 'following':
        return lag === null ? 'Standby; its lag is unknown.' : `Standby, ${lag} behind the writer.`;
    }
  },
  mirror: {
    in_sync: 'Mirrored flushes: the image store is in sync.',
    waiting: 'Mirrored flushes wait for the image store.',
    alone: 'Mirrored flushes are acknowledged without the image store.',
    catching_up: 'Mirrored flushes: the image store is catching up.',
    taken_over: 'Another daemon has taken over the image store; mirrored flushes fail.',
  } as Record<MirrorState, string>,
  shipping: (lag: string | null, bytes: string): string =>
    lag === null
      ? 'The journal is shipped to the image store after the first image.'
      : `The image store is ${lag} behind the journal (${bytes}).`,
  clients: 'Clients',
  clientsText: (nbd: number, ring: number, machines: number): string =>
    `${nbd} by NBD, ${ring} by ring, ${many(machines, 'machine', 'machines')}`,
};

export const warnings = {
  /** What mends a warning, by its kind: where to go, and what for. */
  actions: {
    pool_filling: 'Grow the pool',
    overwrites_uncovered: 'Grow the pool',
    pool_memory_missing: 'Show the pool',
    journal_failing: 'Show the journal',
    journal_slow: 'Show the journal',
    journal_disk_full: 'Show the journal',
    pool_on_disk: 'Show the pool',
    mirror_degraded: 'Show the image store',
    standby_failing: 'Show the image store',
    image_failed: 'Save an image again',
    image_unreachable: 'Show images',
    image_object_missing: 'Show images',
    image_key_previous: 'Save an image',
    image_unreadable: 'Show the image store',
    nbd_insecure: 'Show the NBD settings',
    certificate_expiring: 'Show certificates',
    certificate_expired: 'Show certificates',
    blocks_lost: 'Restore from an image',
    pool_damaged: 'Save an image',
    attachment_failed: 'Show volumes',
    device_dead: 'Show volumes',
    export_failed: 'Show volumes',
  } as Record<string, string>,
};

export const charts = {
  iops: 'Requests per second',
  throughput: 'Throughput',
  latency: 'Latency',
  reduction: 'Reduction ratio: written / memory',
  memory: 'Pool memory',
  other: 'Others',
  time: 'Time',
  noPoints: 'No data in this time range.',
  latest: 'Latest',
  lowest: 'Lowest',
  highest: 'Highest',
  series: 'Series',
  rows: (count: number): string => `The newest ${many(count, 'point', 'points')}, the newest first`,
};
