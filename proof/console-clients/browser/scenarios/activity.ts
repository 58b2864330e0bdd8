/** Charts move when something is read and written. */
import type { Page } from 'playwright-core';
import { until, withBrowser } from '../browser.ts';
import { Console, type Site } from '../console.ts';
import { ask } from '../host.ts';

export async function activity(site: Site): Promise<void> {
  await withBrowser(site.origin, async ({ page }) => {
    const own = new Console(page, site);
    await ask('memlane', 'volume', 'create', 'busy', '--size', '64MiB');
    await own.logIn();
    await page.locator('figure.chart canvas').first().waitFor();
    await until('nothing goes on at first', async () => (await highest(page)) !== null);
    const before = (await highest(page)) ?? 0;
    const pictureBefore = await picture(page);

    await ask('begin-io', 'busy');
    await until('the chart shows requests', async () => ((await highest(page)) ?? 0) > before + 10);
    await until('the picture has changed', async () => (await picture(page)) !== pictureBefore);
    const requests = page.getByRole('region', { name: 'Requests to volumes' });
    const busiest = requests.getByRole('table', { name: 'Busiest volumes' });
    await busiest.getByRole('link', { name: 'busy' }).waitFor();
    const latency = page.locator('figure.chart', { hasText: 'Latency' });
    await latency
      .getByText(/(read|write) p99/)
      .first()
      .waitFor();
    await page.locator('figure.chart', { hasText: 'Reduction' }).first().waitFor();
    await ask('end-io');

    for (const range of ['Last hour', 'Last day', 'Last 5 minutes']) {
      await page.getByLabel('Time', { exact: true }).selectOption({ label: range });
      await page.locator('figure.chart canvas').first().waitFor();
    }
    await ask('memlane', 'volume', 'delete', 'busy');
  });
}

/** The highest number in the table beside the chart of requests. */
async function highest(page: Page): Promise<number | null> {
  const chart = page.locator('figure.chart', { hasText: 'Requests per second' }).first();
  if ((await chart.count()) === 0) return null;
  const cells = await chart.locator('tbody tr td:nth-child(4)').allTextContents();
  const numbers = cells.map(numberOf).filter((value) => Number.isFinite(value));
  return numbers.length === 0 ? null : Math.max(...numbers);
}

function numberOf(text: string): number {
  const scale = text.includes('G') ? 1e9 : text.includes('M') ? 1e6 : 1;
  return Number(text.replace(/[^0-9.]/g, '') || NaN) * scale;
}

async function picture(page: Page): Promise<string> {
  const canvas = page.locator('figure.chart canvas').first();
  return canvas.evaluate((it) => (it as HTMLCanvasElement).toDataURL());
}
