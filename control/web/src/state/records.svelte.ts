/**
 * Records of a topic as they were asked for last: one query for each part, and one that goes on
 * where they are followed.
 */
import { Refusal } from '../api/calls';
import type { QueryTold, TopicDetails } from '../api/model';
import {
  FOLLOWED_MAX,
  NOTHING_KNOWN,
  after,
  ends,
  followedFrom,
  followingOf,
  newest,
  newestFirst,
  queryOf,
  recordOf,
  type Record,
  type Window,
} from '../records';
import { linesOf } from './query.svelte';

/** What comes meanwhile is shown together: a page that changes more often is read by nobody. */
const SHOWN_EVERY_MS = 200;

export class Records {
  list = $state.raw<Record[] | null>(null);
  /** What was asked for last; none while records are followed. */
  windows = $state.raw<readonly Window[]>([]);
  /** By partition the offset after the newest record that was shown. */
  positions = $state.raw(NOTHING_KNOWN);
  isReading = $state(false);
  isFollowing = $state(false);
  /** Whether records were followed, and nothing else was asked for since. */
  isPaused = $state(false);
  /** Offsets that were left out when records were followed again. */
  skippedCount = $state(0);
  failure = $state('');
  /** Whether the console told less than there is, since it was too much. */
  isCut = $state(false);
  private abort: AbortController | null = null;

  /** The newest of all partitions, or of the chosen one. */
  async readNewest(topic: TopicDetails, partition: number | null): Promise<void> {
    this.positions = ends(topic.partitions, partition);
    await this.read(topic.name, newest(topic.partitions, partition));
  }

  async read(topic: string, windows: readonly Window[]): Promise<void> {
    const abort = this.begin();
    this.isPaused = false;
    this.windows = windows;
    if (windows.length === 0) {
      this.list = [];
      this.end(abort);
      return;
    }
    const found: Record[] = [];
    await this.ask(abort, queryOf(topic, windows), (records) => found.push(...records));
    if (this.abort === abort && this.failure === '') this.list = newestFirst(found);
    this.end(abort);
  }

  /** The newest, and what comes, until somebody pauses it; then on from there. */
  async follow(topic: TopicDetails, partition: number | null): Promise<void> {
    const known = this.isPaused ? this.positions : NOTHING_KNOWN;
    const begun = followedFrom(topic.partitions, partition, known);
    let list = this.isPaused ? (this.list ?? []) : [];
    const abort = this.begin();
    let { positions } = begun;
    Object.assign(this, { isFollowing: true, isPaused: false, windows: [] });
    Object.assign(this, { skippedCount: begun.skippedCount, positions });
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = (): void => {
      timer = undefined;
      if (this.abort !== abort) return;
      this.isReading = false;
      this.list = list;
      this.positions = positions;
    };
    await this.ask(abort, followingOf(topic.name, positions), (records) => {
      list = newestFirst([...records, ...list]).slice(0, FOLLOWED_MAX);
      positions = after(positions, records);
      timer ??= setTimeout(show, SHOWN_EVERY_MS);
    });
    clearTimeout(timer);
    show();
    if (this.abort === abort) this.pause();
  }

  /** What came is shown on. */
  pause(): void {
    const wasFollowing = this.isFollowing;
    this.stop();
    this.isPaused = wasFollowing;
  }

  /** Nobody looks any more. */
  stop(): void {
    this.abort?.abort();
    this.abort = null;
    this.isReading = false;
    this.isFollowing = false;
  }

  private begin(): AbortController {
    this.stop();
    Object.assign(this, { failure: '', isCut: false, skippedCount: 0, isReading: true });
    this.abort = new AbortController();
    return this.abort;
  }

  private end(abort: AbortController): void {
    if (this.abort === abort) this.isReading = false;
  }

  /** Takes records as they come, until there are no more. */
  private async ask(
    abort: AbortController,
    query: string,
    take: (records: Record[]) => void,
  ): Promise<void> {
    let first = 0;
    try {
      for await (const line of linesOf(query, abort.signal)) {
        if (this.abort !== abort) return;
        const told = JSON.parse(line) as QueryTold;
        if (told.error !== undefined) throw new Error(told.error);
        // What a live query tells of a row stands before it.
        if (told.columns) first = told.columns.findIndex(({ name }) => name === 'partition');
        else take((told.rows ?? []).map((cells) => recordOf(cells.slice(first))));
        this.isCut = told.end !== undefined && told.end !== 'done';
      }
    } catch (error) {
      if (this.abort !== abort) return;
      this.failure = error instanceof Refusal || error instanceof Error ? error.message : '';
    }
  }
}

/** Whether the broker lets who asks write to a topic. */
export async function mayProduce(topic: string, signal: AbortSignal): Promise<boolean> {
  const table = `"${topic.replaceAll('"', '""')}"`.replaceAll("'", "''");
  const query = `SELECT has_table_privilege('${table}', 'INSERT')`;
  let may = false;
  for await (const line of linesOf(query, signal)) {
    const told = JSON.parse(line) as QueryTold;
    if (told.error !== undefined) throw new Error(told.error);
    may ||= (told.rows ?? []).some(([cell]) => cell === 't' || cell === 'true');
  }
  return may;
}
