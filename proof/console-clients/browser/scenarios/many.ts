/** Pages of 2,000 things: few rows are drawn, all are filtered, sorted and summed; it is measured. */
import type { Page } from 'playwright-core';
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Site } from '../console.ts';
import { note } from '../host.ts';
import { checkView } from './everybody.ts';

const COUNT = 2_000;
const ROWS_DRAWN_MAX = 101;

const VOLUMES = Array.from({ length: COUNT }, (_, index) => ({
  id: index + 1,
  name: `volume-${index}`,
  size_bytes: (1 + ((index * 7_919) % COUNT)) << 20,
  written_bytes: 1 << 20,
  fill_bytes: 0,
  ram_bytes: 1 << 19,
  ratio: 2,
  durability: 'image',
  reduction: 'full',
  capacity: 'thin',
  sector_bytes: '512',
  owner: index % 2 === 0 ? 'memlane-broker' : null,
  labels: {},
  users: [],
  device: null,
  nbd_uri: null,
  nbd_connections: 0,
  ring_clients: 1,
}));

const TOPICS = VOLUMES.map(({ name }, index) => ({
  name: name.replace('volume', 'topic'),
  volume: name,
  partition_count: 1,
  durability: 'ram',
  size_bytes: (index * 7_919) % COUNT,
  records_in: index,
  records_out: 0,
}));

const GROUPS = TOPICS.map(({ name }, index) => ({
  group: `group-${index}`,
  state: 'Stable',
  member_count: 1,
  topics: [{ topic: name, partition_count: 1, lag: (index * 7_919) % COUNT }],
}));

/** In the place of the console's line of events: all volumes, each second. */
const TELLS = `
  const volumes = ${JSON.stringify(VOLUMES)};
  window.EventSource = class extends EventTarget {
    constructor() {
      super();
      this.timer = setInterval(() => this.tell(), 1000);
    }
    tell() {
      for (const [kind, told] of [['daemon', { state: 'up' }], ['volumes', volumes], ['tasks', []]]) {
        this.dispatchEvent(new MessageEvent(kind, { data: JSON.stringify(told) }));
      }
    }
    close() {
      clearInterval(this.timer);
    }
  };
`;

export async function many(site: Site): Promise<void> {
  await withBrowser(site.origin, async ({ page }) => {
    const own = new Console(page, site);
    await page.addInitScript({ content: TELLS });
    await page.route('**/console/v1/topics', (route) =>
      route.fulfill({
        json: {
          state: 'up',
          queries: 'forbidden',
          deletions: 'allowed',
          topics: TOPICS,
          groups: GROUPS,
        },
      }),
    );
    await own.logIn();
    await own.visit('volumes', 'Volumes');
    await own.row('volume-0').first().waitFor();
    await takesFew(page, 'Volumes', 'Size', 'volume-0');
    await page.getByLabel('Belongs to', { exact: true }).selectOption('memlane-broker');
    await page.getByText('1000 volumes').waitFor();
    await checkView(page, '2,000 volumes');
    await own.visit('log', 'Topics');
    await own.row('topic-0').first().waitFor();
    await takesFew(page, 'Topics', 'Lag', 'topic-0');
    await checkView(page, '2,000 topics');
    await own.visit('overview', 'Overview');
    await page.getByText('1999 groups behind').waitFor();
  });
}

/** `smallest` is the row that is first by the column. */
async function takesFew(page: Page, list: string, column: string, smallest: string): Promise<void> {
  const rows = page.getByRole('group', { name: list, exact: true }).locator('tbody tr');
  check((await rows.count()) < ROWS_DRAWN_MAX, `few of the rows of ${list} are drawn`);
  const sort = page.getByRole('group', { name: list, exact: true }).getByRole('button', {
    name: `Sort by ${column}`,
  });
  const sorted = await milliseconds(page, async () => {
    await sort.evaluate((it) => (it as HTMLElement).click());
  });
  const first = (await rows.first().getByRole('rowheader').textContent())?.trim();
  check(first === smallest, `${smallest} is first by ${column}, not ${first}`);
  await page.getByRole('button', { name: new RegExp(`^Next rows.*${list}`) }).click();
  await page.getByText('Rows 101 to 200 of 2,000').first().waitFor();
  const name = `${smallest.split('-')[0]}-1999`;
  const filtered = await milliseconds(page, async () => {
    await page.getByRole('searchbox').evaluate((it, text) => {
      (it as HTMLInputElement).value = text;
      it.dispatchEvent(new InputEvent('input', { bubbles: true }));
    }, name);
  });
  await until('one row is left', async () => (await rows.count()) === 1);
  await rows.filter({ hasText: name }).waitFor();
  await page.getByRole('searchbox').fill('');
  note(`of ${COUNT} ${list}: sorted in ${sorted} ms, filtered in ${filtered} ms`);
}

/** Notes when a change begins, and when the frame behind it is drawn. */
const MARKS = `
  window.took = new Promise((done) => {
    const begin = () => {
      const begun = performance.now();
      requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begun)));
    };
    for (const kind of ['click', 'input']) addEventListener(kind, begin, { capture: true, once: true });
  });
  0
`;

/** The time from a change to the frame that shows it, as the page's own clock has it. */
async function milliseconds(page: Page, change: () => Promise<void>): Promise<string> {
  await page.evaluate(MARKS);
  await change();
  const took = await page.evaluate(() => (window as unknown as { took: Promise<number> }).took);
  return took.toFixed(0);
}
