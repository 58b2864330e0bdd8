/** Results of queries as charts, each with its figures, and plans of queries. */
import type { Page } from 'playwright-core';
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask } from '../host.ts';
import { checkView } from './everybody.ts';

const SIZES = [
  { width: 1440, height: 900 },
  { width: 390, height: 844 },
];

const BY_SYMBOL = `SELECT value->>'symbol' AS symbol, sum((value->>'qty')::bigint) AS qty,
  avg((value->>'change')::float8) AS change FROM trades GROUP BY 1 ORDER BY 1`;
const OVER_TIME = `SELECT (value->>'at')::timestamptz AS at, value->>'symbol' AS symbol,
  (value->>'qty')::bigint AS qty FROM trades`;

export async function results(fixture: Fixture): Promise<void> {
  await populate();
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await own.logIn();
    await own.visit('log', 'Topics');
    await explains(own);
    await drawsBars(own);
    await drawsLines(own);
    await followsChanges(own);
  });
}

async function populate(): Promise<void> {
  await ask('memlane', 'topic', 'create', 'trades', '--partitions', '2');
  const trades = Array.from({ length: 12 }, (_, index) => ({
    symbol: ['ACME', 'ZETA', 'NEWS'][index % 3] ?? '',
    qty: 100 + 10 * index,
    change: index % 3 === 1 ? -1.5 : 2.25,
    at: `2026-01-02 ${String(3 + index).padStart(2, '0')}:00:00+00`,
  }));
  await insert(trades);
}

async function insert(values: object[]): Promise<void> {
  const rows = values.map((value) => `('${JSON.stringify(value)}')`).join(', ');
  await ask('memlane', 'sql', '-c', `INSERT INTO trades (value) VALUES ${rows}`);
}

async function run(own: Console, query: string, said: string | RegExp): Promise<void> {
  await own.page.getByLabel('SELECT, SUBSCRIBE or EXPLAIN').fill(query);
  await own.button('Run').click();
  await own.page.getByText(said).waitFor();
}

async function explains(own: Console): Promise<void> {
  const { page } = own;
  const text = page.getByLabel('SELECT, SUBSCRIBE or EXPLAIN');
  const query = 'SELECT key FROM trades WHERE partition = 1 LIMIT 3';
  await text.fill(query);
  await own.button('Explain').click();
  const plan = page.getByRole('group', { name: 'Plan' });
  await plan.getByText('LogScan: topic=trades').waitFor();
  const lines = (await plan.textContent())?.trim().split('\n') ?? [];
  check(lines.length > 1, `a plan has a line for each step: ${lines.join('|')}`);
  check(/^ +\S/.test(lines.at(-1) ?? ''), 'steps are indented as they depend on each other');
  check((await text.inputValue()) === query, 'the query stays in the box');
  await looksWell(page, 'a plan');
  await page.getByLabel('Follow changes').check();
  check(await own.button('Explain').isDisabled(), 'a live query is not explained');
  await page.getByLabel('Follow changes').uncheck();
  await run(own, `EXPLAIN ANALYZE ${query}`, /output_rows=/);
  await text.fill('SELECT nothing FROM trades');
  await own.button('Explain').click();
  await page.getByRole('alert').filter({ hasText: 'nothing' }).waitFor();
}

/** Numbers along a text: a bar for each, of either sign, beside the figures. */
async function drawsBars(own: Console): Promise<void> {
  const { page } = own;
  await run(own, `SELECT value->>'symbol' AS symbol FROM trades`, 'Done. 12 rows.');
  check(await own.button('Chart').isDisabled(), 'texts are not drawn');
  await page.getByText('A chart needs a numeric column').waitFor();
  await run(own, BY_SYMBOL, 'Done. 3 rows.');
  await own.button('Chart').click();
  const chart = page.getByRole('group', { name: 'Chart' });
  await chart.waitFor();
  const cells = await rowsOf(page);
  const expected = ['ACME 580 2.25', 'NEWS 660 2.25', 'ZETA 620 -1.5'];
  check(cells.join() === expected.join(), `figures stand beside the bars: ${cells.join()}`);
  const widths = await widthsOf(page, 0);
  check(widths[1] === Math.max(...widths), `the largest sum has the longest bar: ${widths.join()}`);
  near(widths[0] ?? 0, ((widths[1] ?? 0) * 580) / 660);
  await looksWell(page, 'bars');
  await page.getByRole('checkbox', { name: 'qty' }).uncheck();
  const changes = await widthsOf(page, 0);
  near(changes[2] ?? 0, ((changes[0] ?? 0) * 1.5) / 2.25);
  await page.getByRole('checkbox', { name: 'change', exact: true }).uncheck();
  await page.getByText('Choose a column to plot.').waitFor();
}

async function rowsOf(page: Page): Promise<string[]> {
  const rows = page.getByRole('group', { name: 'Chart' }).locator('tbody tr');
  const cells = await rows.evaluateAll((all) =>
    all.map((row) =>
      Array.from(row.querySelectorAll('th, td.number')).map((it) => it.textContent?.trim()),
    ),
  );
  return cells.map((row) => row.join(' '));
}

async function widthsOf(page: Page, series: number): Promise<number[]> {
  const bars = page.getByRole('group', { name: 'Chart' }).locator(`rect.fill-${series}`);
  return bars.evaluateAll((all) => all.map((bar) => bar.getBoundingClientRect().width));
}

function near(seen: number, expected: number): void {
  check(Math.abs(seen - expected) < 2, `${seen} pixels are nearly ${expected}`);
}

/** Numbers over a time: a line for each text, and a table of the same. */
async function drawsLines(own: Console): Promise<void> {
  const { page } = own;
  await run(own, OVER_TIME, 'Done. 12 rows.');
  const figure = page.locator('figure.chart');
  await figure.locator('canvas').waitFor();
  const legend = await figure.locator('.legend li').allTextContents();
  const said = legend.map((text) => text.trim().replace(/\s+/g, ' ')).sort();
  const expected = ['ACME: 190', 'NEWS: 210', 'ZETA: 200'];
  check(said.join() === expected.join(), `a line for each symbol: ${said.join()}`);
  check(await isDrawn(page), 'something is drawn');
  await figure.getByText('As a table').click();
  const newest = figure.getByRole('row').filter({ hasText: '2026-01-02 14:00:00.000' });
  const cells = await newest.getByRole('cell').allTextContents();
  check(cells.filter((it) => it.trim() === '210').length === 1, `the newest row: ${cells.join()}`);
  await looksWell(page, 'lines');
  await page.getByLabel('Series by').selectOption('column');
  await figure.getByText('qty: 210').waitFor();
  await page.getByLabel('X axis').selectOption('symbol');
  await until('bars take the place of lines', async () => (await rowsOf(page)).length === 12);
}

async function isDrawn(page: Page): Promise<boolean> {
  return page.locator('figure.chart canvas').evaluate((it) => {
    const canvas = it as HTMLCanvasElement;
    const pixels = canvas.getContext('2d')?.getImageData(0, 0, canvas.width, canvas.height).data;
    return pixels?.some((part) => part !== 0) ?? false;
  });
}

/** A chart of a live query changes with its rows. */
async function followsChanges(own: Console): Promise<void> {
  const { page } = own;
  await page.getByLabel('Follow changes').check();
  await run(own, BY_SYMBOL.replace(/ORDER BY 1$/, ''), 'Following changes.');
  await until('there is a bar for each symbol', async () => (await rowsOf(page)).length === 3);
  await insert([{ symbol: 'OTHER', qty: 7, change: 1, at: '2026-01-03 00:00:00+00' }]);
  await until('another one comes', async () => (await rowsOf(page)).includes('OTHER 7 1'));
  await own.button('Stop').click();
}

async function looksWell(page: Page, what: string): Promise<void> {
  for (const theme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: theme });
    for (const size of SIZES) {
      await page.setViewportSize(size);
      await checkView(page, `${what}, ${theme}, ${size.width} pixels`);
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(SIZES[0] ?? { width: 1440, height: 900 });
}
