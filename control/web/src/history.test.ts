import { expect, test } from 'vitest';
import { charts, rows } from './history';

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
