/** Records of a topic as they were asked for last: one query each time, and none by itself. */
import { Refusal } from '../api/calls';
import type { QueryTold } from '../api/model';
import { newestFirst, queryOf, recordOf, type Record, type Window } from '../records';
import { linesOf } from './query.svelte';

export class Records {
  list = $state.raw<Record[] | null>(null);
  /** What was asked for last. */
  windows = $state.raw<readonly Window[]>([]);
  isReading = $state(false);
  failure = $state('');
  /** Whether the console told less than there is, since it was too much. */
  isCut = $state(false);
  private abort: AbortController | null = null;

  async read(topic: string, windows: readonly Window[]): Promise<void> {
    this.stop();
    this.windows = windows;
    this.failure = '';
    this.isCut = false;
    if (windows.length === 0) {
      this.list = [];
      return;
    }
    const abort = new AbortController();
    this.abort = abort;
    this.isReading = true;
    try {
      const found: Record[] = [];
      for await (const line of linesOf(queryOf(topic, windows), abort.signal)) {
        const told = JSON.parse(line) as QueryTold;
        if (told.error !== undefined) throw new Error(told.error);
        found.push(...(told.rows ?? []).map(recordOf));
        this.isCut = told.end !== undefined && told.end !== 'done';
      }
      if (this.abort === abort) this.list = newestFirst(found);
    } catch (error) {
      if (this.abort !== abort) return;
      this.failure = error instanceof Refusal || error instanceof Error ? error.message : '';
    } finally {
      if (this.abort === abort) this.isReading = false;
    }
  }

  /** Nobody looks any more. */
  stop(): void {
    this.abort?.abort();
    this.abort = null;
    this.isReading = false;
  }
}
