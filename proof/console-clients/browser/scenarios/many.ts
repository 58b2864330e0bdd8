/**
 * Pages of 2,000 things: few rows are drawn, all are filtered, sorted and summed. That takes little
 * longer than with 200 of them, as the same browser has it.
 */
import type { Locator, Page } from 'playwright-core';
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { note } from '../host.ts';
import { checkView } from './everybody.ts';

const COUNT = 2_000;
const FEW = 200;
const ROWS_DRAWN = 100;

/** What costs as much for each row takes ten times as long; what draws a page of them, as long. */
const RATIO_MAX = 3;
/** What else the machine does adds to a time: the least of several counts, and of several rounds. */
const TRIES = 5;
const ROUNDS_MAX = 8;

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
  mirror: 'yes',
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

/** In the place of the console's line of events: so many volumes as the page is told, each second. */
const TELLS = `
  const all = ${JSON.stringify(VOLUMES)};
  window.volumeCount = all.length;
  window.EventSource = class extends EventTarget {
    constructor() {
      super();
      this.timer = setInterval(() => this.tell(), 1000);
    }
    tell() {
      const volumes = all.slice(0, window.volumeCount);
      for (const [kind, told] of [['daemon', { state: 'up' }], ['volumes', volumes], ['tasks', []]]) {
        this.dispatchEvent(new MessageEvent(kind, { data: JSON.stringify(told) }));
      }
    }
    close() {
      clearInterval(this.timer);
    }
  };
`;

/** A long table of a page. */
interface List {
  label: string;
  /** What its rows are named by, with a number behind it. */
  prefix: string;
  column: string;
  /** Where a part of a name is typed. */
  filter: Locator;
  /** Has the page told of so many. */
  tell: (count: number) => Promise<void>;
}

export async function many(fixture: Fixture): Promise<void> {
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    let logCount = COUNT;
    await page.addInitScript({ content: TELLS });
    await page.route('**/console/v1/topics', (route) =>
      route.fulfill({
        json: {
          state: 'up',
          queries: 'forbidden',
          deletions: 'allowed',
          topics: TOPICS.slice(0, logCount),
          groups: GROUPS.slice(0, logCount),
        },
      }),
    );
    await own.logIn();
    await own.visit('volumes', 'Volumes');
    await own.row('volume-0').first().waitFor();
    await takesFew(page, {
      label: 'Volumes',
      prefix: 'volume',
      column: 'Size',
      filter: page.getByLabel('Filter', { exact: true }),
      tell: async (count) => {
        await page.evaluate(`window.volumeCount = ${count}`);
      },
    });
    await page.getByLabel('Owner', { exact: true }).selectOption('memlane-broker');
    await page.getByText('1000 volumes').waitFor();
    await checkView(page, '2,000 volumes');
    await own.visit('log', 'Topics');
    await own.row('topic-0').first().waitFor();
    const tell = (count: number): Promise<void> => {
      logCount = count;
      return Promise.resolve();
    };
    const topics = { label: 'Topics', prefix: 'topic', column: 'Lag', tell };
    const groups = { label: 'Consumer groups', prefix: 'group', column: 'Lag', tell };
    await takesFew(page, { ...topics, filter: page.getByLabel('Filter', { exact: true }) });
    await takesFew(page, { ...groups, filter: page.getByLabel('Filter groups', { exact: true }) });
    await checkView(page, '2,000 topics');
    await own.visit('overview', 'Overview');
    await page.getByText('1999 groups behind').waitFor();
  });
}

async function takesFew(page: Page, list: List): Promise<void> {
  const rows = rowsOf(page, list);
  const first = async (): Promise<string> =>
    (await rows.first().getByRole('rowheader').textContent())?.trim() ?? '';
  check((await rows.count()) === ROWS_DRAWN, `${ROWS_DRAWN} rows of ${list.label} are drawn`);
  await sort(page, list);
  const smallest = `${list.prefix}-0`;
  check(
    (await first()) === smallest,
    `${smallest} is first by ${list.column}, not ${await first()}`,
  );
  await page.getByRole('button', { name: new RegExp(`^Next rows.*${list.label}`) }).click();
  await until(`the next rows of ${list.label} are shown`, async () => (await first()) !== smallest);
  check((await rows.count()) === ROWS_DRAWN, `as many of the next rows of ${list.label} are`);
  await page.getByRole('button', { name: new RegExp(`^Previous rows.*${list.label}`) }).click();
  await search(list, `${list.prefix}-${COUNT - 1}`);
  await until('one row is left', async () => (await rows.count()) === 1);
  await rows.filter({ hasText: `${list.prefix}-${COUNT - 1}` }).waitFor();
  await list.filter.fill('');
  await costsLittleMore(page, list);
}

/** Compares 2,000 with 200 until it holds: a list that costs as much for each row never does. */
async function costsLittleMore(page: Page, list: List): Promise<void> {
  const least = new Map<number, number[]>([
    [FEW, [Infinity, Infinity]],
    [COUNT, [Infinity, Infinity]],
  ]);
  let said = '';
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    for (const [count, costs] of least) {
      await list.tell(count);
      const drawn = pagerOf(page, list).getByText(`of ${count.toLocaleString('en')}`);
      await drawn.waitFor();
      for (let attempt = 0; attempt < TRIES; attempt += 1) {
        const sorted = await milliseconds(page, () => sort(page, list));
        const filtered = await milliseconds(page, () =>
          search(list, `${list.prefix}-${count - 1}`),
        );
        await list.filter.fill('');
        await drawn.waitFor();
        costs[0] = Math.min(costs[0] ?? Infinity, sorted);
        costs[1] = Math.min(costs[1] ?? Infinity, filtered);
      }
    }
    const [few, all] = [least.get(FEW) ?? [], least.get(COUNT) ?? []];
    said = ['sorted', 'filtered']
      .map(
        (what, at) => `${what} in ${all[at]?.toFixed(1)} ms, ${FEW} in ${few[at]?.toFixed(1)} ms`,
      )
      .join('; ');
    if (all.every((cost, at) => cost <= RATIO_MAX * (few[at] ?? 0))) {
      note(`${COUNT} ${list.label}: ${said}`);
      return;
    }
  }
  throw new Error(`${COUNT} ${list.label} take more than ${RATIO_MAX} times as long: ${said}`);
}

function pagerOf(page: Page, { label }: List): Locator {
  return page.locator(`[role=group][aria-label="${label}"] + .pages`).getByRole('status');
}

function rowsOf(page: Page, { label }: List): Locator {
  return page.getByRole('group', { name: label, exact: true }).locator('tbody tr');
}

async function sort(page: Page, { label, column }: List): Promise<void> {
  const table = page.getByRole('group', { name: label, exact: true });
  const button = table.getByRole('button', { name: `Sort by ${column}` });
  await button.evaluate((it) => (it as HTMLElement).click());
}

async function search({ filter }: List, text: string): Promise<void> {
  await filter.evaluate((it, text) => {
    (it as HTMLInputElement).value = text;
    it.dispatchEvent(new InputEvent('input', { bubbles: true }));
  }, text);
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
async function milliseconds(page: Page, change: () => Promise<void>): Promise<number> {
  await page.evaluate(MARKS);
  await change();
  return page.evaluate(() => (window as unknown as { took: Promise<number> }).took);
}
