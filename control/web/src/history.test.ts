import { expect, test } from 'vitest';
import { charts, lonely, rows, withGaps } from './history';

test('series that begin at different times meet in one table', () => {
  const found = rows([
    [
      [10, 1],
      [20, 2],
    ],
    [
      [20, 5],
      [30, null],
    ],
  ]);
  expect(found).toEqual({
    times: [10, 20, 30],
    values: [
      [1, 2, null],
      [null, 5, null],
    ],
  });
});

test('a series stands in one chart', () => {
  const found = charts([
    'read_iops',
    'read_bytes_per_second',
    'pool_used_bytes',
    'read_latency_p99_us',
    'reduction_ratio',
    'other',
  ]);
  expect(found.map((it) => [it.name, it.series])).toEqual([
    ['iops', ['read_iops']],
    ['throughput', ['read_bytes_per_second']],
    ['latency', ['read_latency_p99_us']],
    ['reduction', ['reduction_ratio']],
    ['memory', ['pool_used_bytes']],
  ]);
});

test('nothing is drawn over a time of which nothing is known', () => {
  const points = [
    [0, 5],
    [1, 6],
    [3, 7],
    [60, 8],
    [70, 9],
  ] as const;
  const gapped = withGaps(points, 1);
  expect(gapped.map(([time, value]) => [time, value])).toEqual([
    [0, 5],
    [1, 6],
    [3, 7],
    [4, null],
    [60, 8],
    [61, null],
    [70, 9],
  ]);
  expect(lonely(gapped.map(([, value]) => value))).toEqual([4, 6]);
});
