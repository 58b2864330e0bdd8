import { expect, test } from 'vitest';
import { areNamesUnique, csvOf, jsonOf } from './export';

const COLUMNS = [
  { name: 'key', type: 'text' },
  { name: 'the "qty"', type: 'int8' },
  { name: 'is_new', type: 'bool' },
];
const ROWS = [
  ['a,b', '12345678901234567890', 't'],
  ['', null, 'f'],
  ['say "x"\nagain', '-7', null],
];

test('CSV tells NULL from an empty text and reads back as it was', () => {
  expect(csvOf(COLUMNS, ROWS)).toBe(
    'key,"the ""qty""",is_new\r\n' +
      '"a,b",12345678901234567890,t\r\n' +
      '"",,f\r\n' +
      '"say ""x""\nagain",-7,\r\n',
  );
});

test('JSON has all digits of numbers, and texts where there is no number', () => {
  const text = jsonOf(COLUMNS, ROWS);
  expect(text).toContain('{"key": "a,b", "the \\"qty\\"": 12345678901234567890, "is_new": true}');
  expect(JSON.parse(text)).toHaveLength(3);
  expect(JSON.parse(text)[1]).toEqual({ key: '', 'the "qty"': null, is_new: false });
  const odd = [{ name: 'n', type: 'numeric' }];
  expect(JSON.parse(jsonOf(odd, [['NaN'], ['1.50']]))).toEqual([{ n: 'NaN' }, { n: 1.5 }]);
  expect(jsonOf(odd, [])).toBe('[]\n');
});

test('names that are there twice are found', () => {
  expect(areNamesUnique(COLUMNS)).toBe(true);
  expect(areNamesUnique([...COLUMNS, { name: 'key', type: 'text' }])).toBe(false);
});
