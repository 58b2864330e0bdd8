/**
 * The result of a query as a chart: its numbers as lines over a time, or else as bars for each row.
 * Nothing is added up, so what is drawn is what the rows hold.
 */
import type { QueryColumn } from './api/model';
import type { Rows } from './history';
import type { Cells } from './result';

/** As many as there are colours that are apart. */
export const LINES_MAX = 6;
export const BARS_MAX = 50;

/** The place of a column that stands for the number of the row. */
export const ROW_NUMBER = -1;

export type Shape = 'number' | 'time' | 'text';

const SHAPES: Record<string, Shape> = {
  int2: 'number',
  int4: 'number',
  int8: 'number',
  float4: 'number',
  float8: 'number',
  numeric: 'number',
  date: 'time',
  timestamp: 'time',
  timestamptz: 'time',
};

/** Columns by their places. */
export interface Choice {
  /** What the chart goes along: a time gives lines, anything else gives bars. */
  along: number;
  drawn: readonly number[];
  /** Each text of this column has a line of its own. */
  split: number | null;
}

export interface Lines {
  labels: string[];
  rows: Rows;
  /** Lines that are not drawn. */
  leftOut: number;
  /** Rows without a time. */
  untimed: number;
}

export interface Bars {
  labels: string[];
  bars: { name: string; cells: (string | null)[]; values: (number | null)[] }[];
  lowest: number;
  highest: number;
  leftOut: number;
}

export function shapeOf(column: QueryColumn | undefined): Shape {
  return SHAPES[column?.type ?? ''] ?? 'text';
}

/** The places of the columns of a shape. */
export function placesOf(columns: readonly QueryColumn[], shape: Shape): number[] {
  return columns.flatMap((column, place) => (shapeOf(column) === shape ? [place] : []));
}

/** The first numbers along the first time, text or number; null: there is nothing to draw. */
export function suggested(columns: readonly QueryColumn[], rows: readonly Cells[]): Choice | null {
  const [times, texts] = [placesOf(columns, 'time'), placesOf(columns, 'text')];
  const numbers = placesOf(columns, 'number');
  const along = times[0] ?? texts[0] ?? (numbers.length > 1 ? numbers[0] : ROW_NUMBER);
  const drawn = numbers.filter((place) => place !== along).slice(0, LINES_MAX);
  if (along === undefined || drawn.length === 0) return null;
  const [only, ...others] = texts;
  const isSplit = times.length > 0 && only !== undefined && others.length === 0;
  const isFew = isSplit && new Set(rows.map((row) => row[only])).size <= LINES_MAX;
  return { along, drawn, split: isFew ? only : null };
}

/** Seconds since 1970 of a time as PostgreSQL writes it; without a zone it is read as UTC. */
export function secondsOf(text: string | null | undefined): number | null {
  const parts = /^(\d{4,}-\d\d-\d\d)(?: (\d\d:\d\d:\d\d(?:\.\d+)?))?([+-]\d\d)?(:\d\d)?$/.exec(
    text ?? '',
  );
  if (parts === null) return null;
  const [, day, time = '00:00:00', hours = '+00', minutes = ':00'] = parts;
  const milliseconds = Date.parse(`${day}T${time}${hours}${minutes}`);
  return Number.isNaN(milliseconds) ? null : milliseconds / 1000;
}

/** A line for each drawn column, and for each text of the column that splits them. */
export function linesOf(
  columns: readonly QueryColumn[],
  rows: readonly Cells[],
  { along, drawn, split }: Choice,
): Lines {
  const timed = rows.flatMap((cells) => {
    const time = secondsOf(cells[along]);
    return time === null ? [] : [{ time, cells }];
  });
  timed.sort((a, b) => a.time - b.time);
  const partOf = (cells: Cells): string => (split === null ? '' : (cells[split] ?? 'NULL'));
  const parts = [...new Set(timed.map(({ cells }) => partOf(cells)))];
  const all = parts.flatMap((part) => drawn.map((column) => ({ part, column })));
  const kept = all
    .slice(0, LINES_MAX)
    .map((line) => ({ ...line, points: new Map<number, number | null>() }));
  const times: number[] = [];
  for (const { time, cells } of timed) {
    const own = kept.filter(({ part }) => part === partOf(cells));
    if (own.length === 0) continue;
    // Lines share a time; two rows of one line at a time are two points of it.
    const isTaken = own.some(({ points }) => points.has(times.length - 1));
    if (isTaken || times.at(-1) !== time) times.push(time);
    for (const { points, column } of own) points.set(times.length - 1, numberOf(cells[column]));
  }
  const values = kept.map(({ points }) => times.map((_, index) => points.get(index)));
  const labels = kept.map(({ part, column }) => labelOf(columns, column, part, drawn.length));
  return {
    labels: distinct(labels),
    rows: { times, values },
    leftOut: all.length - kept.length,
    untimed: rows.length - timed.length,
  };
}

/** The first rows, each with a bar for each drawn column; all bars have one scale. */
export function barsOf(
  columns: readonly QueryColumn[],
  rows: readonly Cells[],
  { along, drawn }: Choice,
): Bars {
  const bars = rows.slice(0, BARS_MAX).map((row, index) => ({
    name: along === ROW_NUMBER ? String(index + 1) : (row[along] ?? 'NULL'),
    cells: drawn.map((column) => row[column] ?? null),
    values: drawn.map((column) => numberOf(row[column])),
  }));
  const values = bars.flatMap((bar) => bar.values.filter((value) => value !== null));
  return {
    labels: distinct(drawn.map((column) => columns[column]?.name ?? '')),
    bars,
    lowest: Math.min(0, ...values),
    highest: Math.max(0, ...values),
    leftOut: rows.length - bars.length,
  };
}

/** NaN and the infinities have no place in a picture; the rows show them. */
function numberOf(text: string | null | undefined): number | null {
  const value = text === null || text === undefined || text === '' ? NaN : Number(text);
  return Number.isFinite(value) ? value : null;
}

function labelOf(
  columns: readonly QueryColumn[],
  column: number,
  part: string,
  drawnCount: number,
): string {
  const name = columns[column]?.name ?? '';
  if (part === '') return name;
  return drawnCount === 1 ? part : `${part} ${name}`;
}

/** Two columns may have one name, but no two lines. */
function distinct(labels: readonly string[]): string[] {
  return labels.map((label, index) =>
    labels.indexOf(label) === index ? label : `${label} (${index + 1})`,
  );
}
