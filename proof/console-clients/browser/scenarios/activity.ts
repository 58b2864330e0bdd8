/** Charts move when something is read and written. */
import type { Page } from 'playwright-core';
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask } from '../host.ts';
import { looksWell } from './everybody.ts';

export async function activity(fixture: Fixture): Promise<void> {
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
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
    const slowest = requests.getByRole('table', { name: 'Slowest volumes' });
    await slowest.getByRole('row', { name: /^busy (read|write) \S+ (µs|ms|s)$/ }).waitFor();
    const latency = page.locator('figure.chart', { hasText: 'Latency' });
    await latency
      .getByText(/(read|write) p99/)
      .first()
      .waitFor();
    await page.locator('figure.chart', { hasText: 'Reduction' }).first().waitFor();
    await ofOneVolume(own);
    await ask('end-io');
    await restoresOnTheLineOfTime(own);
    await own.visit('overview', 'Overview');

    for (const range of ['Last hour', 'Last day', 'Last 5 minutes']) {
      await page.getByLabel('Time range', { exact: true }).selectOption({ label: range });
      await page.locator('figure.chart canvas').first().waitFor();
    }
    await ask('memlane', 'volume', 'delete', 'busy');
  });
}

/** The page of a volume has its requests, throughput and latencies over time. */
async function ofOneVolume(own: Console): Promise<void> {
  const { page } = own;
  await own.visit('volumes/busy', 'busy');
  await until('the volume shows requests', async () => ((await highest(page)) ?? 0) > 10);
  await page
    .locator('figure.chart', { hasText: 'Throughput' })
    .getByText(/read: /)
    .waitFor();
  const latency = page.locator('figure.chart', { hasText: 'Latency' });
  await latency
    .getByText(/(read|write) p99/)
    .first()
    .waitFor();
  const sinceStart = page.getByRole('table', { name: 'Latency since the daemon started' });
  const writes = sinceStart.getByRole('row', { name: /^writes( \S+ (µs|ms|s)){3} [\d,.]+/ });
  await writes.waitFor();
  await page.getByLabel('Time range', { exact: true }).selectOption({ label: 'Last hour' });
  await page.locator('figure.chart canvas').first().waitFor();
  await looksWell(page, 'the activity of a volume');
}

/** Any snapshot is chosen on the line of time, the newest at first, and restored from there. */
async function restoresOnTheLineOfTime(own: Console): Promise<void> {
  const { page } = own;
  await ask('write', 'busy', '8192', '11');
  await ask('memlane', 'snapshot', 'create', 'busy@first');
  await ask('write', 'busy', '8192', '12');
  await ask('memlane', 'snapshot', 'create', 'busy@second');
  await own.visit('overview', 'Overview');
  // Three clicks from the overview to the restore of a snapshot.
  await page.getByRole('navigation').getByRole('link', { name: 'Volumes' }).click();
  await page.getByRole('link', { name: 'busy', exact: true }).click();
  const restore = await own.begin('Restore this one');
  await restore.element.getByRole('heading', { name: 'Restore busy@second' }).waitFor();
  await restore.cancel();
  const chosen = page.locator('output');
  await chosen.getByText(/^second, taken /).waitFor();
  await page.getByRole('slider', { name: 'By time' }).press('Home');
  await chosen.getByText(/^first, taken /).waitFor();
  await looksWell(page, 'snapshots on a line of time');
  const dialog = await own.begin('Restore this one');
  await dialog.element.getByRole('heading', { name: 'Restore busy@first' }).waitFor();
  await dialog.confirmByName('busy');
  await own.told('busy was restored to first.');
  check((await ask('check', 'busy', '8192', '11')) === 'same', 'the contents are those of first');
  for (const name of ['first', 'second'])
    await ask('memlane', 'snapshot', 'delete', `busy@${name}`);
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
