/** What the daemon and the broker tell, judged: how each thing is, in one word for its chip. */
import type { Group, Machine, Pool, Status } from './api/model';

export type Mood = 'good' | 'warning' | 'danger' | 'neutral';

/** Bytes that a power cut would take now, by class. */
export interface Risk {
  kind: 'ram' | 'image' | 'journal';
  bytes: number;
}

export function risks(status: Status): Risk[] {
  const risk = status.durability.at_risk;
  return [
    { kind: 'ram', bytes: risk.ram_bytes },
    { kind: 'image', bytes: risk.image_bytes },
    { kind: 'journal', bytes: risk.journal_bytes },
  ];
}

export function sumOf(risks: readonly Risk[]): number {
  return risks.reduce((sum, { bytes }) => sum + bytes, 0);
}

const DAY_SECONDS = 86_400;

/** Full within a day, or past a threshold of the daemon's, is a warning. */
export function moodOfPool(pool: Pool): Mood {
  const isSoon = pool.forecast !== null && pool.forecast !== undefined;
  if (isSoon && (pool.forecast?.full_in_seconds ?? Infinity) < DAY_SECONDS) return 'danger';
  return (pool.passed_percent ?? null) === null ? 'good' : 'warning';
}

/** A group on one topic. */
export interface Behind {
  group: string;
  topic: string;
  lag: number;
}

/** Those that are behind, the furthest first. */
export function behind(groups: readonly Group[]): Behind[] {
  const all = groups.flatMap(({ group, topics }) =>
    topics.map(({ topic, lag }) => ({ group, topic, lag })),
  );
  return all.filter(({ lag }) => lag > 0).sort((a, b) => b.lag - a.lag);
}

export interface MachineCounts {
  all: number;
  running: number;
  crashed: string[];
}

export function counted(machines: readonly Machine[]): MachineCounts {
  return {
    all: machines.length,
    running: machines.filter(({ state }) => state === 'running').length,
    crashed: machines.filter(({ state }) => state === 'crashed').map(({ name }) => name),
  };
}

export function moodOfMachine({ state }: Machine): Mood {
  if (state === 'running') return 'good';
  if (state === 'crashed') return 'danger';
  return state === 'off' ? 'neutral' : 'warning';
}
