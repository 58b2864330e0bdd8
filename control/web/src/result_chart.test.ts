import { expect, test } from 'vitest';
import { BARS_MAX, ROW_NUMBER, barsOf, linesOf, secondsOf, suggested } from './result_chart';

const columns = (...types: string[]) => types.map((type, index) => ({ name: `c${index}`, type }));

test('the first numbers are drawn along the first time, text or number', () => {
  const choice = (...types: string[]) => suggested(columns(...types), []);
  expect(choice('int8', 'timestamptz', 'text', 'float8', 'jsonb')).toEqual({
    along: 1,
    drawn: [0, 3],
    split: null,
  });
  expect(choice('numeric', 'text')).toEqual({ along: 1, drawn: [0], split: null });
  expect(choice('int4', 'int8')).toEqual({ along: 0, drawn: [1], split: null });
  expect(choice('int8')).toEqual({ along: ROW_NUMBER, drawn: [0], split: null });
  expect(choice('text', 'timestamptz')).toBeNull();
  expect(choice(...Array<string>(9).fill('int8'))?.drawn).toHaveLength(6);
});

test('few texts beside a time have a line each, many do not', () => {
  const three = columns('date', 'text', 'int8');
  const row = (text: string) => ['2026-01-01', text, '1'];
  expect(suggested(three, ['a', 'b', 'a'].map(row))?.split).toBe(1);
  expect(suggested(three, ['a', 'b', 'c', 'd', 'e', 'f', 'g'].map(row))?.split).toBeNull();
});

test('times are read as PostgreSQL writes them', () => {
  expect(secondsOf('1970-01-01')).toBe(0);
  expect(secondsOf('1970-01-01 00:00:01.5')).toBe(1.5);
  expect(secondsOf('1970-01-01 01:00:00.25+01')).toBe(0.25);
  expect(secondsOf('1970-01-01 05:30:00+05:30')).toBe(0);
  for (const none of ['infinity', '12:00:00', '', null]) expect(secondsOf(none)).toBeNull();
});

test('lines are in the order of time, with a gap for NULL, and share a time', () => {
  const three = columns('timestamptz', 'text', 'int8');
  const told = [
    ['1970-01-01 00:00:02+00', 'a', '20'],
    ['1970-01-01 00:00:01+00', 'a', '10'],
    ['1970-01-01 00:00:01+00', 'b', null],
    ['1970-01-01 00:00:02+00', 'a', '21'],
    [null, 'a', '5'],
  ];
  const split = linesOf(three, told, { along: 0, drawn: [2], split: 1 });
  expect(split.labels).toEqual(['a', 'b']);
  expect(split.rows.times).toEqual([1, 2, 2]);
  expect(split.rows.values).toEqual([
    [10, 20, 21],
    [null, undefined, undefined],
  ]);
  expect([split.leftOut, split.untimed]).toEqual([0, 1]);
  const whole = linesOf(three, told, { along: 0, drawn: [2], split: null });
  expect(whole.labels).toEqual(['c2']);
  expect(whole.rows).toEqual({ times: [1, 1, 2, 2], values: [[10, null, 20, 21]] });
});

test('more lines than colours are left out and counted', () => {
  const told = Array.from({ length: 9 }, (_, index) => ['1970-01-01', `t${index}`, `${index}`]);
  const lines = linesOf(columns('date', 'text', 'int8'), told, { along: 0, drawn: [2], split: 1 });
  expect([lines.labels.length, lines.leftOut]).toEqual([6, 3]);
  expect(lines.rows.times).toEqual([0]);
  expect(lines.rows.values.flat()).toEqual([0, 1, 2, 3, 4, 5]);
});

test('bars keep the order of rows, their texts, and one scale with zero in it', () => {
  const told = [
    ['x', '5', '-2.5'],
    [null, 'NaN', '12345678901234567890'],
  ];
  const bars = barsOf(columns('text', 'float8', 'numeric'), told, {
    along: 0,
    drawn: [1, 2],
    split: null,
  });
  expect(bars.bars.map(({ name }) => name)).toEqual(['x', 'NULL']);
  expect(bars.bars[1]?.cells).toEqual(['NaN', '12345678901234567890']);
  expect(bars.bars[1]?.values[0]).toBeNull();
  expect([bars.lowest, bars.leftOut]).toEqual([-2.5, 0]);
  const many = Array.from({ length: BARS_MAX + 2 }, () => ['7']);
  const numbered = barsOf(columns('int8'), many, { along: ROW_NUMBER, drawn: [0], split: null });
  expect([numbered.bars.at(-1)?.name, numbered.leftOut]).toEqual([String(BARS_MAX), 2]);
  expect([numbered.lowest, numbered.highest]).toEqual([0, 7]);
});
