/** The console's history over a span of time, read again and again while a page shows it. */
import { get } from '../api/calls';
import type { Series } from '../api/model';
import { charts, label, rows, withGaps, type ChartSpec, type Rows } from '../history';

export const RANGES = {
  live: { seconds: 300, intervalMs: 2_000 },
  hour: { seconds: 3_600, intervalMs: 10_000 },
  hours: { seconds: 21_600, intervalMs: 60_000 },
  day: { seconds: 86_400, intervalMs: 60_000 },
} as const;
export type Range = keyof typeof RANGES;

export interface Drawn {
  chart: ChartSpec;
  labels: string[];
  rows: Rows;
}

export class Charts {
  range = $state<Range>('live');
  /** null: not told yet. */
  drawn = $state.raw<Drawn[] | null>(null);
  failure = $state<string | null>(null);

  /** Begins with the component that makes it and ends with it. */
  constructor() {
    $effect(() => {
      const { seconds, intervalMs } = RANGES[this.range];
      let isOver = false;
      let timer: ReturnType<typeof setTimeout> | undefined;
      const next = async (): Promise<void> => {
        if (!document.hidden) {
          try {
            const found = await read(seconds);
            if (isOver) return;
            this.drawn = found;
            this.failure = null;
          } catch (error) {
            this.failure = error instanceof Error ? error.message : String(error);
          }
        }
        if (!isOver) timer = setTimeout(() => void next(), intervalMs);
      };
      void next();
      return () => {
        isOver = true;
        clearTimeout(timer);
      };
    });
  }
}

async function read(seconds: number): Promise<Drawn[]> {
  const found = await get<Series[]>(`/console/v1/charts?seconds=${seconds}`);
  const points = new Map(found.map((one) => [one.series, withGaps(one.points, one.step_seconds)]));
  return charts([...points.keys()]).map((chart) => {
    const series = chart.series.map((name) => points.get(name) ?? []);
    const labels = chart.series.map((name) => label(name, chart.name));
    return { chart, labels, rows: rows(series) };
  });
}
