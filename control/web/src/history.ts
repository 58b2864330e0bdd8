/** Which series of the console's history stand in which chart. */

export type Unit = 'count' | 'bytes' | 'bytes_per_second' | 'microseconds' | 'ratio';

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

/** Rows for a chart and its table: one time, and the value of each series at it. */
export interface Rows {
  times: number[];
  values: (number | null)[][];
}

/** Series of one request have the same step, but not always the same first point. */
export function rows(series: readonly (readonly (readonly [number, number | null])[])[]): Rows {
  const times = [...new Set(series.flatMap((points) => points.map(([time]) => time)))];
  times.sort((a, b) => a - b);
  const values = series.map((points) => {
    const byTime = new Map(points);
    return times.map((time) => byTime.get(time) ?? null);
  });
  return { times, values };
}
