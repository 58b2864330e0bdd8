import { expect, test } from 'vitest';
import { Listing, Order, Pages, ROWS_OF_PAGE } from './table.svelte';

const ROWS = ['b 10', 'A', 'b 9', 'c'].map((name, size) => ({ name, size }));
type Row = (typeof ROWS)[number];
const KEYS = { name: ({ name }: Row) => name, size: ({ size }: Row) => size };

function listed(change: (listing: Listing<Row>) => void): string[] {
  const listing = new Listing(() => ROWS, 'name', KEYS, KEYS.name);
  change(listing);
  return listing.shown.map(KEYS.name);
}

test('rows come in the order of a column, and numbers in texts by their value', () => {
  expect(listed(() => undefined)).toEqual(['A', 'b 9', 'b 10', 'c']);
  expect(listed(({ order }) => order.by('name'))).toEqual(['c', 'b 10', 'b 9', 'A']);
  expect(listed(({ order }) => order.by('size'))).toEqual(['b 10', 'A', 'b 9', 'c']);
});

test('a filter leaves what contains it in any case, in the same order', () => {
  expect(listed((listing) => (listing.filter = ' B '))).toEqual(['b 9', 'b 10']);
  expect(listed((listing) => (listing.filter = 'd'))).toEqual([]);
});

test('the key of a row is made once, however many comparisons there are', () => {
  let count = 0;
  const rows = Array.from({ length: 100 }, (_, index) => (index * 37) % 100);
  const key = (row: number): number => {
    count += 1;
    return row;
  };
  const sorted = new Order('key').sorted(rows, { key });
  expect(sorted).toEqual(rows.toSorted((a, b) => a - b));
  expect(count).toBe(rows.length);
});

test('the last page is shown where rows have gone', () => {
  const rows = Array.from({ length: ROWS_OF_PAGE + 1 }, (_, index) => index);
  const pages = new Pages();
  pages.go(1);
  expect(pages.of(rows)).toEqual([ROWS_OF_PAGE]);
  expect(pages.of(rows.slice(0, 5))).toEqual([0, 1, 2, 3, 4]);
});
