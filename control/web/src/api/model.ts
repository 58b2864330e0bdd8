/**
 * The words of the interfaces: the daemon's and that of machines, generated from their OpenAPI
 * documents, and those that the console adds.
 */
import type { components as machines } from './machines';
import type { components } from './schema';

type Schemas = components['schemas'];
type MachineSchemas = machines['schemas'];

export type Attachment = Schemas['Attachment'];
export type Diff = Schemas['Diff'];
export type Event = Schemas['Event'];
export type Export = Schemas['Export'];
export type Forecast = Schemas['Forecast'];
export type Image = Schemas['Image'];
export type Latency = Schemas['Latency'];
export type MirrorState = Schemas['MirrorState'];
export type Pool = Schemas['Pool'];
export type PoolStatus = Schemas['PoolStatus'];
export type Snapshot = Schemas['Snapshot'];
export type StandbyState = Schemas['StandbyState'];
export type Status = Schemas['Status'];
export type Task = Schemas['Task'];
export type Volume = Schemas['Volume'];
export type VolumeLatencies = Schemas['VolumeLatencies'];
export type Warning = Schemas['Warning'];

export type Machine = MachineSchemas['Machine'];
export type MachineCreate = MachineSchemas['MachineCreate'];
export type MachineDisk = MachineSchemas['MachineDisk'];
export type MachineNetwork = MachineSchemas['MachineNetwork'];
export type MachineSnapshot = MachineSchemas['MachineSnapshot'];
export type MachinesCreated = MachineSchemas['MachinesCreated'];

/** The kind of problem where who is logged in has to enable a second factor first. */
export const MUST_ENROL = 'second_factor_required';

/** The owner of volumes that hold topics. */
export const BROKER_OWNER = 'memlane-broker';

/** Problem details (RFC 9457), of the daemon and of the console. */
export interface Problem {
  title: string;
  status: number;
  detail?: string;
  kind?: string;
  field?: string | null;
}

export type Role = 'viewer' | 'operator' | 'administrator';

export const ROLES: readonly Role[] = ['viewer', 'operator', 'administrator'];

export interface Session {
  name: string;
  role: Role;
  projects: string[];
  csrf: string;
  expires: number;
  /** Nothing may be done but enabling a second factor. */
  must_enrol: boolean;
  services: Services;
}

/** What the console was started with besides the daemon: nothing is asked of the others. */
export interface Services {
  broker: boolean;
  machines: boolean;
}

/** How somebody may log in. */
export interface LoginWays {
  password: boolean;
  provider: boolean;
}

export interface User {
  name: string;
  role: Role;
  projects: string[];
  disabled: boolean;
  second_factor: boolean;
  etag: string;
}

/** Rules for all users. */
export interface Rules {
  second_factor_required: boolean;
  etag: string;
}

export interface Project {
  name: string;
  prefix: string;
  quota_bytes: number | null;
  /** Of volumes and snapshots, counted together. */
  quota_volumes: number;
  etag: string;
}

export interface Token {
  id: string;
  name: string;
  role: Role;
  projects: string[];
  /** Who made it: it may never more than they may. */
  owner: string;
  created: number;
  expires: number;
  last_used: number | null;
}

/** A session that goes on. */
export interface ListedSession {
  id: string;
  user: string;
  /** Where its login came from. */
  address: string;
  begun: number;
  used: number;
}

export interface AuditEntry {
  id: number;
  time: number;
  user: string | null;
  token: string | null;
  address: string | null;
  method: string;
  path: string;
  status: number;
  /** What was asked for, and what was there before; its length where it was shortened. */
  change?: { old?: unknown; new?: unknown; truncated_bytes?: number };
  /** How many requests it stands for. */
  count: number;
}

/** What a new password of one's own has ended, and the tokens that go on. */
export interface PasswordChanged {
  sessions_ended: number;
  tokens: number;
}

/** The second factor of who is logged in. */
export interface SecondFactor {
  enabled: boolean;
  /** False: a provider logs them in. */
  available: boolean;
  recovery_codes_left: number;
}

export interface SecondFactorSecret {
  secret: string;
  uri: string;
}

export interface SecondFactorEnabled {
  recovery_codes: string[];
  sessions_ended: number;
}

export type DaemonState = 'up' | 'down';

/** A series of the console's history: `points` begin at the oldest; null where none was taken. */
export interface Series {
  series: string;
  step_seconds: number;
  points: (readonly [time: number, value: number | null])[];
}

/** A volume to which many requests come, as the console counts them. */
export interface BusyVolume {
  volume: string;
  requests_per_second: number;
  bytes_per_second: number;
}

/** A volume and the kind of its requests that took longest in the last minute. */
export interface SlowVolume {
  volume: string;
  kind: 'read' | 'write' | 'flush';
  p99_us: number;
}

/** Whether something may be done that takes a part of the broker's and a role. */
export type Right = 'allowed' | 'forbidden' | 'not_configured';

/** A topic of the broker, as its lists tell it. */
export interface Topic {
  name: string;
  volume: string;
  partition_count: number;
  durability: string;
  size_bytes: number;
  /** Since the broker started. */
  records_in: number;
  records_out: number;
}

export interface TopicDetails extends Topic {
  settings: Record<string, string>;
  partitions: {
    partition: number;
    start_offset: number;
    end_offset: number;
    size_bytes: number;
  }[];
}

export interface Group {
  group: string;
  state: string;
  member_count: number;
  topics: { topic: string; partition_count: number; lag: number }[];
}

export interface PartitionLag {
  partition: number;
  committed_offset: number;
  start_offset: number;
  end_offset: number;
  lag: number;
}

/** A group alone; `resets` says whether who is logged in may reset its offsets. */
export interface GroupDetails extends Group {
  type: string;
  topics: (Group['topics'][number] & { partitions: PartitionLag[] })[];
  resets: Right;
}

/** Offset of a group in a partition, before and after; null: it had none. */
export interface OffsetChange {
  topic: string;
  partition: number;
  from: number | null;
  to: number;
}

/** Topics and groups; `queries` and `deletions` say whether who is logged in may do that. */
export interface MessageLog {
  state: 'up' | 'down' | 'not_configured';
  queries: Right;
  deletions: Right;
  failure?: string;
  topics?: Topic[];
  /** null: the broker had no time to tell. */
  groups?: Group[] | null;
}

export interface QueryColumn {
  name: string;
  type: string;
}

/** A line of the answer to a query. */
export interface QueryTold {
  columns?: QueryColumn[];
  live?: boolean;
  rows?: (string | null)[][];
  end?: string;
  error?: string;
}
