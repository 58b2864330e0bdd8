/** Order, filter, pages and selection of a table. */
import { SvelteSet } from 'svelte/reactivity';

export type Key = string | number;

/** Made once: a comparison that makes its own takes a hundred times as long. */
const COLLATOR = new Intl.Collator('en', { numeric: true });

export class Order {
  column = $state('');
  isDescending = $state(false);

  constructor(column: string) {
    this.column = column;
  }

  by(column: string): void {
    this.isDescending = this.column === column ? !this.isDescending : false;
    this.column = column;
  }

  /** The key of a row is made once, and not with each comparison. */
  sorted<T>(rows: readonly T[], keys: Record<string, (row: T) => Key>): readonly T[] {
    const key = keys[this.column];
    if (key === undefined) return rows;
    const sign = this.isDescending ? -1 : 1;
    const keyed = rows.map((row) => ({ row, key: key(row) }));
    keyed.sort((a, b) => sign * compared(a.key, b.key));
    return keyed.map(({ row }) => row);
  }
}

function compared(a: Key, b: Key): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return COLLATOR.compare(String(a), String(b));
}

/**
 * The rows of a table in their order, as far as they match a filter. They are put in order when
 * they come or another order is chosen, and only looked through with each letter of the filter.
 */
export class Listing<Row> {
  filter = $state('');
  readonly order: Order;
  private readonly ordered = $derived.by(() => this.order.sorted(this.rows(), this.keys));
  private readonly described = $derived.by(() => {
    return this.ordered.map((row) => this.describe(row).toLowerCase());
  });
  readonly shown = $derived.by(() => {
    const part = this.filter.trim().toLowerCase();
    if (part === '') return this.ordered;
    return this.ordered.filter((_, at) => this.described[at]?.includes(part));
  });

  /** `column` is that of the first order; `describe` returns what a row is found by. */
  constructor(
    private readonly rows: () => readonly Row[],
    column: string,
    private readonly keys: Record<string, (row: Row) => Key>,
    private readonly describe: (row: Row) => string,
  ) {
    this.order = new Order(column);
  }
}

/** Rows that are chosen, by their keys; a row that is not listed does not count. */
export class Selection<Row> {
  private readonly keys = new SvelteSet<Key>();

  constructor(private readonly keyOf: (row: Row) => Key) {}

  has(row: Row): boolean {
    return this.keys.has(this.keyOf(row));
  }

  of(rows: readonly Row[]): Row[] {
    // Where none is chosen, no row is asked.
    return this.keys.size === 0 ? [] : rows.filter((row) => this.has(row));
  }

  set(rows: readonly Row[], isChosen: boolean): void {
    for (const row of rows) {
      if (isChosen) this.keys.add(this.keyOf(row));
      else this.keys.delete(this.keyOf(row));
    }
  }

  clear(): void {
    this.keys.clear();
  }
}

/** More rows are not drawn at a time: 2,000 would take their time with each figure that comes. */
export const ROWS_OF_PAGE = 100;

/** The page of a long table that is shown. */
export class Pages {
  private wanted = $state(0);

  /** The rows of the page, which is the last one where rows have gone. */
  of<T>(rows: readonly T[]): readonly T[] {
    const first = this.at(rows.length) * ROWS_OF_PAGE;
    return rows.slice(first, first + ROWS_OF_PAGE);
  }

  at(rowCount: number): number {
    return Math.min(this.wanted, Math.max(0, Math.ceil(rowCount / ROWS_OF_PAGE) - 1));
  }

  go(page: number): void {
    this.wanted = Math.max(0, page);
  }
}
