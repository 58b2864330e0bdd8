import { expect, test } from 'vitest';
import {
  after,
  beginning,
  ends,
  followedFrom,
  followingOf,
  newerCount,
  newest,
  newestFirst,
  older,
  queryOf,
  recordOf,
} from './records';

const partition = (number: number, start: number, end: number) => ({
  partition: number,
  start_offset: start,
  end_offset: end,
  size_bytes: 0,
});

test('the newest part of each partition is asked for, then the one before it', () => {
  const partitions = [partition(0, 0, 1_000), partition(1, 5, 9), partition(2, 7, 7)];
  const first = newest(partitions, null);
  expect(first).toEqual([
    { partition: 0, from: 967, end: 1_000 },
    { partition: 1, from: 5, end: 9 },
  ]);
  expect(older(first, partitions)).toEqual([{ partition: 0, from: 917, end: 967 }]);
  expect(newest(partitions, 0)).toEqual([{ partition: 0, from: 900, end: 1_000 }]);
  expect(older([{ partition: 0, from: 3, end: 9 }], partitions)).toEqual([
    { partition: 0, from: 0, end: 3 },
  ]);
  expect(older([{ partition: 0, from: 0, end: 9 }], partitions)).toEqual([]);
});

test('from an offset on it is what is there', () => {
  expect(beginning(partition(1, 5, 300), 2)).toEqual([{ partition: 1, from: 5, end: 105 }]);
  expect(beginning(partition(1, 5, 300), 299)).toEqual([{ partition: 1, from: 299, end: 300 }]);
  expect(beginning(partition(1, 5, 300), 300)).toEqual([]);
});

test('names of topics stay names', () => {
  const query = queryOf('a"b', [{ partition: 0, from: 1, end: 2 }]);
  expect(query).toContain('FROM "a""b$log$bytes" WHERE partition = 0');
});

test('bytes are the text that they are, or digits where they are none', () => {
  const record = recordOf(['1', '7', 't', '\\x61', '\\xc3a9', null]);
  expect(record).toMatchObject({ partition: 1, offset: '7', key: 'a', value: 'é', isText: true });
  expect(recordOf(['1', '7', 't', null, '\\xff00', null])).toMatchObject({
    key: null,
    value: '\\xff00',
    isText: false,
  });
  expect(recordOf(['0', '0', 't', null, null, '{}'])).toMatchObject({ value: null, headers: '{}' });
});

test('the newest record is first, also of one instant', () => {
  const records = [
    ['0', '9', '2026-01-01', null, null, null],
    ['0', '10', '2026-01-01', null, null, null],
    ['1', '3', '2026-01-02', null, null, null],
  ].map(recordOf);
  expect(newestFirst(records).map(({ offset }) => offset)).toEqual(['3', '10', '9']);
});

test('records are followed from the newest on, or from where that was paused', () => {
  const partitions = [partition(0, 0, 1_000), partition(1, 7, 7)];
  const fresh = followedFrom(partitions, null, new Map());
  expect(fresh).toEqual({
    positions: new Map([
      [0, 950],
      [1, 7],
    ]),
    skippedCount: 0,
  });
  expect(
    followedFrom(
      partitions,
      null,
      new Map([
        [0, 990],
        [1, 7],
      ]),
    ),
  ).toEqual({
    positions: new Map([
      [0, 990],
      [1, 7],
    ]),
    skippedCount: 0,
  });
  expect(followedFrom(partitions, 0, new Map([[0, 300]]))).toEqual({
    positions: new Map([[0, 900]]),
    skippedCount: 600,
  });
  expect(followingOf('a"b', fresh.positions)).toContain(
    `"a""b$log$bytes" WHERE partition IN (0, 1)) WITH (SNAPSHOT = false) ` +
      `AS OF AT LEAST '0:950,1:7'`,
  );
});

test('positions go on after the records that came', () => {
  const records = [recordOf(['0', '7', 't', null, null, null])];
  expect([
    ...after(
      new Map([
        [0, 3],
        [1, 4],
      ]),
      records,
    ),
  ]).toEqual([
    [0, 8],
    [1, 4],
  ]);
});

test('what came since is counted for the partitions that are shown', () => {
  const before = ends([partition(0, 0, 10), partition(1, 0, 5)], 0);
  expect(newerCount([partition(0, 0, 12), partition(1, 0, 9)], before)).toBe(2);
});
