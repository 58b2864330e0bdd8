/**
 * The rows of a query. Of a live one, what holds now: a row that is taken back goes, and what came
 * last stands first.
 */
import type { QueryColumn } from './api/model';

export type Cells = readonly (string | null)[];

export interface Row {
  key: string;
  cells: Cells;
}

/** More rows are not shown: a page of so many is read by nobody. */
export const ROWS_SHOWN_MAX = 500;

/** Rows of a query that ends are kept up to here: more than the console tells of one. */
const ROWS_KEPT_MAX = 11_000;

/** What a live query tells of a row beside its cells. */
const ABOUT = new Set(['mz_timestamp', 'mz_diff', 'mz_progressed', 'mz_position', 'mz_state']);

export class Result {
  columns: QueryColumn[] = [];
  count = 0;
  isCut = false;
  /** Whether rows came that are not kept. */
  isSomeLost = false;
  private isLive = false;
  private diffAt = -1;
  private shownAt: number[] = [];
  /** How often each row is there; what came last is at the end. */
  private readonly held = new Map<string, { cells: Cells; times: number }>();
  private readonly list: Row[] = [];
  private numbered = 0;

  begin(columns: QueryColumn[], isLive: boolean): void {
    this.isLive = isLive;
    this.diffAt = isLive ? columns.findIndex((column) => column.name === 'mz_diff') : -1;
    const isShown = (name: string): boolean => this.diffAt < 0 || !ABOUT.has(name);
    this.shownAt = columns.flatMap((column, index) => (isShown(column.name) ? [index] : []));
    this.columns = this.shownAt.flatMap((index) => columns[index] ?? []);
  }

  add(rows: readonly Cells[]): void {
    this.count += rows.length;
    for (const row of rows) {
      const cells = this.shownAt.map((index) => row[index] ?? null);
      if (this.diffAt < 0) this.append(cells);
      else this.change(cells, Number(row[this.diffAt]));
    }
  }

  /** The newest first where it goes on, else as they came. */
  rows(): Row[] {
    return this.all().slice(0, ROWS_SHOWN_MAX);
  }

  /** The same with those that are not shown. */
  kept(): Cells[] {
    return this.all().map(({ cells }) => cells);
  }

  private all(): Row[] {
    if (this.diffAt < 0) return this.isLive ? this.list.toReversed() : [...this.list];
    const rows = [...this.held].flatMap(([key, { cells, times }]) =>
      Array.from({ length: times }, (_, index) => ({ key: `${key} ${index}`, cells })),
    );
    return rows.reverse();
  }

  private append(cells: Cells): void {
    if (!this.isLive && this.list.length >= ROWS_KEPT_MAX) {
      this.isSomeLost = true;
      return;
    }
    this.numbered += 1;
    this.list.push({ key: String(this.numbered), cells });
    if (this.list.length <= ROWS_SHOWN_MAX) return;
    this.isCut = true;
    if (!this.isLive) return;
    this.list.shift();
    this.isSomeLost = true;
  }

  private change(cells: Cells, diff: number): void {
    const key = JSON.stringify(cells);
    const times = (this.held.get(key)?.times ?? 0) + diff;
    // At the end again, where it is the newest.
    this.held.delete(key);
    if (times <= 0) return;
    this.held.set(key, { cells, times: Math.min(times, ROWS_SHOWN_MAX) });
    if (this.held.size <= ROWS_SHOWN_MAX) return;
    const oldest = this.held.keys().next().value;
    if (oldest !== undefined) this.held.delete(oldest);
    this.isCut = true;
    this.isSomeLost = true;
  }
}

/** The text that follows a query: its rows, then each change of them. */
export function following(query: string): string {
  return `SUBSCRIBE TO (${query.trim().replace(/;+$/, '').trimEnd()})`;
}

/** Whether a query follows what it asks for by itself. */
export function isFollowing(query: string): boolean {
  return /^\s*subscribe\b/i.test(query);
}

/** The text that shows the plan of a query, which may be one already. */
export function explaining(query: string): string {
  return isExplaining(query) ? query : `EXPLAIN ${query.trim()}`;
}

export function isExplaining(query: string): boolean {
  return /^\s*explain\b/i.test(query);
}

/** A name as SQL has it, in quotes where it needs them. */
export function sqlName(name: string): string {
  return /^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}
