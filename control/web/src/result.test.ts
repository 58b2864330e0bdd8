import { expect, test } from 'vitest';
import {
  ROWS_SHOWN_MAX,
  Result,
  explaining,
  following,
  isExplaining,
  isFollowing,
  sqlName,
} from './result';

const text = (name: string) => ({ name, type: 'text' });
const cellsOf = (result: Result) => result.rows().map((row) => row.cells);

test('rows of a query that ends stand as they came, up to a limit', () => {
  const result = new Result();
  result.begin([text('key'), text('mz_diff')], false);
  result.add([
    ['a', '1'],
    ['a', '1'],
    [null, '2'],
  ]);
  expect(result.columns.map((column) => column.name)).toEqual(['key', 'mz_diff']);
  expect(cellsOf(result)).toEqual([
    ['a', '1'],
    ['a', '1'],
    [null, '2'],
  ]);
  expect(new Set(result.rows().map((row) => row.key)).size).toBe(3);
  expect(result.isCut).toBe(false);
  result.add(Array.from({ length: ROWS_SHOWN_MAX }, (_, index) => [String(index), '']));
  expect(result.rows()).toHaveLength(ROWS_SHOWN_MAX);
  expect(result.rows()[0]?.cells[0]).toBe('a');
  expect([result.isCut, result.count]).toEqual([true, ROWS_SHOWN_MAX + 3]);
  expect([result.isSomeLost, result.kept().length]).toEqual([false, ROWS_SHOWN_MAX + 3]);
  result.add(Array.from({ length: 11_000 }, () => ['b', '']));
  expect([result.isSomeLost, result.kept().length]).toEqual([true, 11_000]);
});

test('of a live query there is what holds now, the newest first', () => {
  const result = new Result();
  result.begin([text('mz_timestamp'), text('mz_diff'), text('key'), text('value')], true);
  expect(result.columns.map((column) => column.name)).toEqual(['key', 'value']);
  result.add([
    ['1', '1', 'a', '1'],
    ['1', '1', 'b', '2'],
  ]);
  result.add([
    ['2', '-1', 'a', '1'],
    ['2', '1', 'a', '3'],
  ]);
  expect(cellsOf(result)).toEqual([
    ['a', '3'],
    ['b', '2'],
  ]);
  result.add([['3', '1', 'b', '2']]);
  expect(cellsOf(result)).toHaveLength(3);
  result.add([
    ['4', '-1', 'b', '2'],
    ['4', '-1', 'b', '2'],
  ]);
  expect(cellsOf(result)).toEqual([['a', '3']]);
});

test('a live query without an end shows its last rows', () => {
  const result = new Result();
  result.begin([text('mz_diff'), text('n')], true);
  result.add(Array.from({ length: 2_000 }, (_, index) => ['1', String(index)]));
  expect(result.rows()).toHaveLength(ROWS_SHOWN_MAX);
  expect(result.rows()[0]?.cells).toEqual(['1999']);
  expect(new Set(result.rows().map((row) => row.key)).size).toBe(ROWS_SHOWN_MAX);
  expect(result.isCut).toBe(true);
});

test('texts of queries', () => {
  expect(following(' SELECT 1 ;; ')).toBe('SUBSCRIBE TO (SELECT 1)');
  expect([isFollowing('\nSubscribe to a'), isFollowing('SELECT subscribe')]).toEqual([true, false]);
  expect(['orders', 'a.b', 'Say "x"'].map(sqlName)).toEqual(['orders', '"a.b"', '"Say ""x"""']);
});

test('a query is explained by one word, which is there once', () => {
  expect(explaining(' SELECT 1 ')).toBe('EXPLAIN SELECT 1');
  expect(explaining('explain analyze SELECT 1')).toBe('explain analyze SELECT 1');
  expect(isExplaining('SELECT explain')).toBe(false);
});
