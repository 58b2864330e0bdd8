/** A query over topics that runs: rows as they come, until it ends or nobody looks any more. */
import { Refusal, open } from '../api/calls';
import type { QueryColumn, QueryTold } from '../api/model';
import { Result, type Cells, type Row } from '../result';

export const QUERY_PATH = '/console/v1/query';

export type QueryState = 'idle' | 'running' | 'following' | 'ended' | 'failed';

class Query {
  state = $state<QueryState>('idle');
  columns = $state.raw<QueryColumn[]>([]);
  rows = $state.raw<Row[]>([]);
  /** Rows that came, of which not all are shown. */
  count = $state(0);
  isCut = $state(false);
  /** Whether rows came that are not kept, or the console told less than there is. */
  isSomeLost = $state(false);
  /** Why it ended: `done`, a limit of the console's, or `stopped`. */
  reason = $state('');
  failure = $state('');
  private abort: AbortController | null = null;
  private result = new Result();

  get isRunning(): boolean {
    return this.state === 'running' || this.state === 'following';
  }

  async run(query: string): Promise<void> {
    this.stop();
    const abort = new AbortController();
    this.abort = abort;
    Object.assign(this, { state: 'running', columns: [], rows: [], count: 0, isCut: false });
    Object.assign(this, { reason: '', failure: '', isSomeLost: false });
    const result = new Result();
    this.result = result;
    try {
      for await (const line of linesOf(query, abort.signal)) {
        if (this.abort !== abort) return;
        this.take(JSON.parse(line) as QueryTold, result);
      }
      if (this.abort === abort && this.isRunning) throw new Error('the connection ended');
    } catch (error) {
      if (this.abort !== abort || abort.signal.aborted) return;
      this.failure = error instanceof Refusal || error instanceof Error ? error.message : '';
      this.state = 'failed';
    }
  }

  /** The rows that came and still hold, in the order in which they are shown. */
  kept(): readonly Cells[] {
    return this.result.kept();
  }

  /** Ends what runs, at the broker too. What came is shown on. */
  stop(): void {
    const wasRunning = this.isRunning;
    this.abort?.abort();
    this.abort = null;
    if (!wasRunning) return;
    this.state = 'ended';
    this.reason = 'stopped';
  }

  private take(told: QueryTold, result: Result): void {
    if (told.columns) {
      result.begin(told.columns, told.live === true);
      this.columns = result.columns;
      this.state = told.live === true ? 'following' : 'running';
    }
    if (told.rows && told.rows.length > 0) {
      result.add(told.rows);
      this.rows = result.rows();
      this.count = result.count;
      this.isCut = result.isCut;
      this.isSomeLost = result.isSomeLost;
    }
    if (told.error !== undefined) {
      this.failure = told.error;
      this.state = 'failed';
    } else if (told.end !== undefined) {
      this.reason = told.end;
      this.isSomeLost ||= told.end !== 'done';
      this.state = 'ended';
    }
  }
}

/** The lines of JSON that a query's answer is made of, as they come. */
export async function* linesOf(query: string, signal: AbortSignal): AsyncGenerator<string> {
  const response = await open({ method: 'POST', path: QUERY_PATH, body: { query } }, signal);
  const reader = response.body?.getReader();
  if (!reader) return;
  const decoder = new TextDecoder();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const lines = text.split('\n');
    text = lines.pop() ?? '';
    yield* lines;
  }
}

export const query = new Query();
