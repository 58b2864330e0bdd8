import { expect, test } from 'vitest';
import * as format from './format';

test.each([
  [0, '0 B'],
  [1023, '1023 B'],
  [1024, '1.00 KiB'],
  [1536, '1.50 KiB'],
  [10 * 2 ** 20, '10.0 MiB'],
  [123.4 * 2 ** 30, '123 GiB'],
  [64 * 2 ** 40, '64.0 TiB'],
])('%d bytes are %s', (bytes, text) => {
  expect(format.bytes(bytes)).toBe(text);
});

test.each([
  [0, '0'],
  [4096, '4KiB'],
  [10 * 2 ** 30, '10GiB'],
  [1500, '1500'],
  [2 ** 30 + 4096, '1048580KiB'],
])('%d bytes are exactly %s', (bytes, text) => {
  expect(format.exactBytes(bytes)).toBe(text);
});

test.each([
  [0, '0 s'],
  [0.03, 'less than 0.1 s'],
  [0.42, '0.4 s'],
  [9, '9 s'],
  [59.6, '1 min'],
  [61, '1 min 1 s'],
  [3600, '1 h'],
  [5400, '1 h 30 min'],
  [86400 * 3 + 3600 * 4, '3 d 4 h'],
])('%d seconds are %s', (seconds, text) => {
  expect(format.duration(seconds)).toBe(text);
});

test.each([
  [0, '0'],
  [12.34, '12.3'],
  [1234, '1,234'],
  [1_234_567, '1.23 M'],
  [2.5e9, '2.50 G'],
])('%d is the count %s', (value, text) => {
  expect(format.count(value)).toBe(text);
});

test.each([
  [0.5, '0.50 µs'],
  [999, '999 µs'],
  [1500, '1.50 ms'],
  [2_000_000, '2.00 s'],
])('%d microseconds are %s', (value, text) => {
  expect(format.microseconds(value)).toBe(text);
});

test('what is small is not told as nothing', () => {
  expect(format.percent(1, 10_000)).toBe('< 0.1 %');
  expect(format.percent(0, 10_000)).toBe('0 %');
  expect(format.percent(1, 8)).toBe('12.5 %');
});

test('what cannot be known is a dash', () => {
  expect(format.ratio(null)).toBe('–');
  expect(format.percent(1, 0)).toBe('–');
});
