/** Rows of a query as a file: CSV as PostgreSQL writes it, or JSON. */
import type { QueryColumn } from './api/model';
import type { Cells } from './result';

/** Types whose texts are values of JSON as they stand. */
const NUMBERS = new Set(['int2', 'int4', 'int8', 'float4', 'float8', 'numeric']);
const NUMBER = /^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$/;

/** A line for each row, below the names. NULL is nothing, and an empty text is in quotes. */
export function csvOf(columns: readonly QueryColumn[], rows: readonly Cells[]): string {
  const lines = [columns.map(({ name }) => name), ...rows];
  return lines.map((line) => `${line.map(csvCell).join(',')}\r\n`).join('');
}

function csvCell(cell: string | null): string {
  if (cell === null) return '';
  return cell === '' || /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}

/** Whether each row is an object: names that are there twice would hide values. */
export function areNamesUnique(columns: readonly QueryColumn[]): boolean {
  return new Set(columns.map(({ name }) => name)).size === columns.length;
}

/** A list with an object for each row. Numbers have all the digits that the query told. */
export function jsonOf(columns: readonly QueryColumn[], rows: readonly Cells[]): string {
  const objects = rows.map((row) => {
    const fields = columns.map(({ name, type }, index) => {
      return `${JSON.stringify(name)}: ${jsonCell(row[index] ?? null, type)}`;
    });
    return `{${fields.join(', ')}}`;
  });
  return objects.length === 0 ? '[]\n' : `[\n  ${objects.join(',\n  ')}\n]\n`;
}

function jsonCell(cell: string | null, type: string): string {
  if (cell === null) return 'null';
  if (NUMBERS.has(type) && NUMBER.test(cell)) return cell;
  if (type === 'bool') return cell === 't' || cell === 'true' ? 'true' : 'false';
  return JSON.stringify(cell);
}
