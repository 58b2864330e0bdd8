/** Which series of the console's history stand in which chart. */

export type Unit = 'plain' | 'count' | 'bytes' | 'bytes_per_second' | 'microseconds' | 'ratio';

export type ChartName = 'iops' | 'throughput' | 'latency' | 'memory' | 'reduction';

export interface ChartSpec {
  name: ChartName;
  unit: Unit;
  series: string[];
}

/** As many lines as colours are apart. */
const LINES_MAX = 6;

const CHARTS: { name: ChartName; unit: Unit; takes: RegExp }[] = [
  { name: 'iops', unit: 'count', takes: /(iops|requests_per_second)/ },
  { name: 'throughput', unit: 'bytes_per_second', takes: /(throughput|bytes_per_second)/ },
  { name: 'latency', unit: 'microseconds', takes: /(latency|_us$|_seconds_p\d+)/ },
  { name: 'reduction', unit: 'ratio', takes: /_ratio$/ },
  { name: 'memory', unit: 'bytes', takes: /pool.*_bytes$/ },
];

/** The charts that these series give; each series stands in one. */
export function charts(series: readonly string[]): ChartSpec[] {
  const left = new Set(series);
  return CHARTS.flatMap(({ name, unit, takes }) => {
    const taken = [...left].filter((one) => takes.test(one)).slice(0, LINES_MAX);
    taken.forEach((one) => left.delete(one));
    return taken.length > 0 ? [{ name, unit, series: taken }] : [];
  });
}

/** `read_iops` as people say it: `read`. */
export function label(series: string, chart: ChartName): string {
  const words = series.replace(/[._]/g, ' ');
  const known: Record<ChartName, RegExp> = {
    iops: /\b(iops|requests per second)\b/g,
    throughput: /\b(throughput|bytes per second|bytes)\b/g,
    latency: /\b(latency|us|seconds)\b/g,
    reduction: /\b(ratio)\b/g,
    memory: /\b(memlane|pool|bytes)\b/g,
  };
  const short = words.replace(known[chart], ' ').replace(/\s+/g, ' ').trim();
  return short === '' ? words : short;
}

/**
 * Rows for a chart and its table: one time, and the value of each series at it. At null a line has
 * a gap; over undefined, where a series has nothing to tell, it goes on.
 */
export interface Rows {
  times: number[];
  values: (number | null | undefined)[][];
}

type Points = readonly (readonly [time: number, value: number | null])[];

/** Points come a step apart, or late by one; what lies further apart is not joined. */
const STEPS_MAX = 2.5;

/** The points, with a gap where none was taken: no line is drawn over what nobody knows. */
export function withGaps(points: Points, stepSeconds: number): Points {
  return points.flatMap((point, index) => {
    const next = points[index + 1];
    const isGap = next !== undefined && next[0] - point[0] > STEPS_MAX * stepSeconds;
    return isGap ? [point, [point[0] + stepSeconds, null] as const] : [point];
  });
}

/** Series of one request have the same step, but not always the same first point. */
export function rows(series: readonly Points[]): Rows {
  const times = [...new Set(series.flatMap((points) => points.map(([time]) => time)))];
  times.sort((a, b) => a - b);
  const values = series.map((points) => {
    const byTime = new Map(points);
    return times.map((time) => byTime.get(time) ?? null);
  });
  return { times, values };
}

/** Where a series has a figure between two gaps: no line leads there. */
export function lonely(values: readonly (number | null | undefined)[]): number[] {
  return values.flatMap((value, index) => {
    const isThere = (at: number): boolean => (values[at] ?? null) !== null;
    return (value ?? null) !== null && !isThere(index - 1) && !isThere(index + 1) ? [index] : [];
  });
}
