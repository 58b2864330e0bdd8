/** Order and filter of a table. */

export type Key = string | number;

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

  sorted<T>(rows: readonly T[], keys: Record<string, (row: T) => Key>): T[] {
    const key = keys[this.column];
    if (key === undefined) return [...rows];
    const sign = this.isDescending ? -1 : 1;
    return rows.toSorted((a, b) => sign * compared(key(a), key(b)));
  }
}

function compared(a: Key, b: Key): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return String(a).localeCompare(String(b), 'en', { numeric: true });
}

export function matches(name: string, filter: string): boolean {
  return name.toLowerCase().includes(filter.trim().toLowerCase());
}
