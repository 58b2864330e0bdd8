/** Records of a topic, by queries over parts of its log: which part is asked for, and what came. */
import type { TopicDetails } from './api/model';
import type { Cells } from './result';

type Partition = TopicDetails['partitions'][number];

export interface Record {
  partition: number;
  offset: string;
  time: string;
  key: string | null;
  value: string | null;
  /** Whether the value is text; others are shown as hexadecimal digits. */
  isText: boolean;
  headers: string | null;
}

/** Part of a partition: from an offset on, and up to another, which is not of it. */
export interface Window {
  partition: number;
  from: number;
  end: number;
}

/** Offsets that are looked at together, over all partitions. */
const OFFSETS_MAX = 100;
/** Of each partition at least. */
const OFFSETS_MIN = 10;
/** More partitions are not asked at a time. */
export const PARTITIONS_MAX = 50;
/** Records that are kept of those that come; the oldest go. */
export const FOLLOWED_MAX = 500;

/** By partition the offset after the last one that is known. */
export type Positions = ReadonlyMap<number, number>;

export const NOTHING_KNOWN: Positions = new Map();

/** The newest part of each partition, or of the chosen one. */
export function newest(partitions: readonly Partition[], chosen: number | null): Window[] {
  return newestOf(partitions, chosen).filter(({ from, end }) => from < end);
}

/** The same with the parts in which there is nothing. */
function newestOf(partitions: readonly Partition[], chosen: number | null): Window[] {
  const asked = partitions.filter(({ partition }) => chosen === null || partition === chosen);
  return asked.slice(0, PARTITIONS_MAX).map(({ partition, start_offset, end_offset }) => {
    const from = Math.max(start_offset, end_offset - step(asked.length));
    return { partition, from, end: end_offset };
  });
}

/** Where all that there is of the partitions that are asked ends. */
export function ends(partitions: readonly Partition[], chosen: number | null): Positions {
  return new Map(newestOf(partitions, chosen).map(({ partition, end }) => [partition, end]));
}

/**
 * Where to begin to follow: before the newest records, and not before what is known. `skippedCount`
 * offsets lie between what is known and that.
 */
export function followedFrom(
  partitions: readonly Partition[],
  chosen: number | null,
  known: Positions,
): { positions: Positions; skippedCount: number } {
  const positions = new Map<number, number>();
  let skippedCount = 0;
  for (const { partition, from } of newestOf(partitions, chosen)) {
    const position = known.get(partition) ?? from;
    positions.set(partition, Math.max(position, from));
    skippedCount += Math.max(0, from - position);
  }
  return { positions, skippedCount };
}

/** Where these records end, and what was known before. */
export function after(known: Positions, records: readonly Record[]): Positions {
  const ended = records.map(({ partition, offset }) => [partition, Number(offset) + 1] as const);
  return new Map([...known, ...ended]);
}

/** Offsets of these partitions that came after what is known. */
export function newerCount(partitions: readonly Partition[], known: Positions): number {
  return partitions.reduce((sum, { partition, end_offset }) => {
    return sum + Math.max(0, end_offset - (known.get(partition) ?? end_offset));
  }, 0);
}

/** The part of a partition that begins at an offset. */
export function beginning(partition: Partition, offset: number): Window[] {
  const from = Math.max(partition.start_offset, offset);
  const end = Math.min(partition.end_offset, from + step(1));
  return from < end ? [{ partition: partition.partition, from, end }] : [];
}

/** The parts before these; none where they begin at the first offset. */
export function older(windows: readonly Window[], partitions: readonly Partition[]): Window[] {
  const first = new Map(partitions.map((it) => [it.partition, it.start_offset]));
  return windows
    .map(({ partition, from }) => {
      const start = first.get(partition) ?? from;
      return { partition, from: Math.max(start, from - step(windows.length)), end: from };
    })
    .filter(({ from, end }) => from < end);
}

function step(partitionCount: number): number {
  return Math.max(OFFSETS_MIN, Math.floor(OFFSETS_MAX / Math.max(1, partitionCount)));
}

/** One query for all of them. Keys and values come as bytes: one that is no text fails nothing. */
export function queryOf(topic: string, windows: readonly Window[]): string {
  const selected = selectOf(topic);
  return windows
    .map(
      ({ partition, from, end }) =>
        `${selected} WHERE partition = ${partition} AND "offset" >= ${from} AND "offset" < ${end}`,
    )
    .join(' UNION ALL ');
}

/** The query that gives records from the positions on, and goes on as they come. */
export function followingOf(topic: string, positions: Positions): string {
  const points = [...positions].map(([partition, offset]) => `${partition}:${offset}`);
  const asked = [...positions.keys()].join(', ');
  return (
    `SUBSCRIBE TO (${selectOf(topic)} WHERE partition IN (${asked})) ` +
    `WITH (SNAPSHOT = false) AS OF AT LEAST '${points.join(',')}'`
  );
}

function selectOf(topic: string): string {
  const table = `"${topic.replaceAll('"', '""')}$log$bytes"`;
  return `SELECT partition, "offset", time, key, value, headers FROM ${table}`;
}

/** A row of these queries. */
export function recordOf(cells: Cells): Record {
  const [partition, offset, time, key, value, headers] = cells;
  const told = textOf(value ?? null);
  return {
    partition: Number(partition),
    offset: offset ?? '',
    time: time ?? '',
    key: textOf(key ?? null).text,
    value: told.text,
    isText: told.isText,
    headers: headers ?? null,
  };
}

/** The newest first: by time, and in a partition by offset. */
export function newestFirst(records: readonly Record[]): Record[] {
  const ordered = records.toSorted((a, b) => Number(b.offset) - Number(a.offset));
  return ordered.sort((a, b) => (a.time === b.time ? 0 : a.time < b.time ? 1 : -1));
}

/** Bytes as SQL writes them, `\x6162`, as the text that they are. */
function textOf(bytes: string | null): { text: string | null; isText: boolean } {
  if (bytes === null || !bytes.startsWith('\\x')) return { text: bytes, isText: true };
  const digits = bytes.slice(2).match(/../g) ?? [];
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  try {
    const text = decoder.decode(Uint8Array.from(digits, (pair) => parseInt(pair, 16)));
    return { text, isText: true };
  } catch {
    return { text: bytes, isText: false };
  }
}
