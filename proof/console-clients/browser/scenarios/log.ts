/** Topics with their partitions and lag, queries with live rows, rights, and a broker that dies. */
import { readFileSync } from 'node:fs';
import type { Page } from 'playwright-core';
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask } from '../host.ts';
import { checkView, settled } from './everybody.ts';

const PASSWORD = 'a long password of vera';
const NARROW = { width: 360, height: 740 };
const FINGER = { width: 390, height: 844 };
const WIDE = { width: 1280, height: 900 };

/** Records that the page keeps of those that come. */
const FOLLOWED_MAX = 500;

export const EXAMPLE = `SELECT value->>'symbol' AS symbol, sum((value->>'qty')::bigint) AS qty
FROM "orders$current" GROUP BY 1`;

/** Two topics, and a group that is behind in one of them. */
export async function populateTopics(): Promise<void> {
  await ask('memlane', 'topic', 'create', 'orders', '--partitions', '2', ...LATEST);
  await ask('memlane', 'topic', 'create', 'audit.log');
  for (const [key, symbol, qty] of [
    ['1', 'ACME', 5],
    ['2', 'ZETA', 7],
    ['3', 'ACME', 20],
  ] as const) {
    await insert(key, symbol, qty);
  }
  await ask('memlane', 'consume', 'orders', '--group', 'billing', '--count', '1');
}

const LATEST = ['--config', 'memlane.values=latest'];

async function insert(key: string, symbol: string, qty: number): Promise<void> {
  const value = JSON.stringify({ symbol, qty });
  const statement = `INSERT INTO orders (key, value) VALUES ('${key}', '${value}')`;
  await ask('memlane', 'sql', '-c', statement);
}

export async function log(fixture: Fixture): Promise<void> {
  await populateTopics();
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await own.logIn();
    await seesTopics(own);
    await queries(own);
    await looksWell(own);
    await browsesRecords(own);
    await followsRecords(own);
    await producesRecord(own);
    await keepsQueries(own);
    await own.visit('administration/users', /Users/);
    const dialog = await own.begin('Add a user');
    await dialog.fill({ Name: 'vera', Password: PASSWORD, Role: 'viewer' });
    await dialog.confirm();
    await own.visit('log', 'Topics');
    await own.row('audit.log').first().waitFor();
    await ask('kill-broker');
    const away = page.getByRole('alert').filter({ hasText: 'The broker does not answer' });
    await away.waitFor();
    check(await own.row('audit.log').first().isVisible(), 'what was told last is still shown');
    await ask('start-broker');
    await away.waitFor({ state: 'detached' });
    await own.row('audit.log').first().waitFor();
    await own.logOut();
  });
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await own.logIn('vera', PASSWORD);
    await own.visit('log', 'Topics');
    await own.row('audit.log').first().waitFor();
    await page.getByText('they require the role operator').waitFor();
    check((await own.button('Run').count()) === 0, 'who looks has no button for queries');
    await own.visit('log/orders', 'orders');
    await page.getByText('Reading and producing records requires the role operator.').waitFor();
    check((await own.button('Produce a record').count()) === 0, 'nor one for records');
  });
}

async function seesTopics(own: Console): Promise<void> {
  const { page } = own;
  const menu = page.getByRole('navigation', { name: 'Pages' });
  await menu.getByRole('link', { name: 'Topics' }).click();
  await page.getByRole('heading', { level: 1, name: 'Topics' }).waitFor();
  const topics = page.getByRole('group', { name: 'Topics' });
  const orders = topics.getByRole('row').filter({ hasText: 'orders' });
  await orders.waitFor();
  // The first cell holds the box that selects the topic.
  const [, ...cells] = await orders.getByRole('cell').allTextContents();
  check(cells[0] === '2', `orders has two partitions: ${cells.join()}`);
  check(cells[2] === '3', `three records came: ${cells.join()}`);
  const groups = page.getByRole('group', { name: 'Consumer groups' });
  const billing = groups.getByRole('row').filter({ hasText: 'billing' });
  await billing.waitFor();
  const lag = Number(await billing.getByRole('cell').last().textContent());
  check(lag >= 0 && lag < 3, `billing has read something: ${lag}`);
  await insert('4', 'NEWS', 1);
  await until('the lag grows', async () => {
    return Number(await billing.getByRole('cell').last().textContent()) > lag;
  });
  await page.getByLabel('Filter', { exact: true }).fill('audit');
  await orders.waitFor({ state: 'detached' });
  await page.getByLabel('Filter', { exact: true }).fill('');
  await orders.getByRole('link').click();
  await page.getByRole('heading', { level: 1, name: 'orders' }).waitFor();
  const partitions = page.getByRole('group', { name: 'Partitions' }).locator('tbody tr');
  await until('both partitions are there', async () => (await partitions.count()) === 2);
  const ends = await partitions.locator('td:nth-child(3)').allTextContents();
  check(ends.map(Number).reduce((sum, end) => sum + end, 0) === 4, `four records: ${ends.join()}`);
  await own.row('memlane.values').waitFor();
}

/** The newest record of a topic is three clicks away, and is read when somebody asks. */
async function browsesRecords(own: Console): Promise<void> {
  const { page } = own;
  const value = '{"symbol":"DEEP","qty":12345678901234567890,"legs":[{"side":"buy"}]}';
  const headers = '{"trace":"ab12"}';
  const columns = '(key, value, headers)';
  const insert = `INSERT INTO orders ${columns} VALUES ('deep', '${value}', '${headers}')`;
  await ask('memlane', 'sql', '-c', insert);
  await own.visit('overview', 'Overview');
  let asked = 0;
  page.on('request', (request) => {
    if (new URL(request.url()).pathname === '/console/v1/query') asked += 1;
  });
  const menu = page.getByRole('navigation', { name: 'Pages' });
  await menu.getByRole('link', { name: 'Topics' }).click();
  await page.getByRole('link', { name: 'orders' }).first().click();
  const records = page.getByRole('group', { name: 'Records' });
  await records.getByRole('button').first().click();
  const opened = records.locator('tr.opened');
  for (const text of ['deep', 'trace', 'ab12', '12345678901234567890']) {
    await opened.getByText(text).first().waitFor();
  }
  const side = opened.getByText('"buy"');
  check(await side.isVisible(), 'all of a value is open');
  await opened.locator('summary', { hasText: 'legs' }).click();
  await side.waitFor({ state: 'hidden' });
  await checkView(page, 'an opened record');

  const details = page.waitForResponse((answer) => answer.url().endsWith('/topics/orders'));
  await details;
  await page.waitForResponse((answer) => answer.url().endsWith('/topics/orders'));
  check(asked === 1, `records are read when somebody asks: ${asked} times`);
  check(await opened.isVisible(), 'what is open stays open while figures come');
  const line = records.locator('tbody tr').first().getByRole('cell');
  const [partition = '', offset = ''] = (await line.allTextContents()).slice(0, 2);
  await page.getByLabel('Partition', { exact: true }).selectOption(partition);
  await page.getByLabel('From offset').fill(/[0-9]+$/.exec(offset.trim())?.[0] ?? '');
  await own.button('Show').click();
  await until('one record is left', async () => (await records.locator('tbody tr').count()) === 1);
  await records.getByText('deep').first().waitFor();
}

/** New records appear, paused and resumed; no more are kept than the page says. */
async function followsRecords(own: Console): Promise<void> {
  const { page } = own;
  await own.visit('log/audit.log', 'audit.log');
  await settled(page);
  await page.getByText('No records here.').waitFor();
  await own.button('Follow').click();
  await page.getByText('New records appear as they arrive.').waitFor();
  await insertMany('one', 1);
  const lines = page.getByRole('group', { name: 'Records' }).locator('tbody tr');
  await lines.getByText('one-1', { exact: true }).first().waitFor();
  check((await running()) === 1, 'the broker runs one query');
  for (const theme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: theme });
    for (const size of [WIDE, FINGER]) {
      await page.setViewportSize(size);
      await checkView(page, `followed records, ${theme}, ${size.width} pixels`);
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(WIDE);

  await own.button('Pause').click();
  await page.getByText('Paused.').waitFor();
  await until('the query ends at the broker', async () => (await running()) === 0);
  await insertMany('two', 2);
  await page.getByText('2 new').waitFor();
  check((await lines.count()) === 1, 'nothing comes while it is paused');
  await own.button('Resume').click();
  await lines.getByText('two-2', { exact: true }).first().waitFor();
  const offsets = await lines.locator('td:nth-child(2)').allTextContents();
  const seen = offsets.map((text) => /[0-9]+$/.exec(text.trim())?.[0]).join();
  check(seen === '2,1,0', `each record is there once, the newest first: ${seen}`);

  await insertMany('many', FOLLOWED_MAX);
  await lines.getByText(`many-${FOLLOWED_MAX}`, { exact: true }).first().waitFor();
  check((await lines.count()) === FOLLOWED_MAX, `so many are kept: ${await lines.count()}`);
  await own.button('Pause').click();
  await insertMany('late', 150);
  await page.getByText('150 new').waitFor();
  await own.button('Resume').click();
  await page.getByText('Skipped: 50 offsets').waitFor();
  await lines.getByText('late-150', { exact: true }).first().waitFor();
  check((await lines.getByText('late-50', { exact: true }).count()) === 0, 'those are left out');

  await ask('kill-broker');
  await own.button('Resume').waitFor();
  await ask('start-broker');
  await page.getByText('The broker does not answer').waitFor({ state: 'detached' });
  await insertMany('again', 1);
  await own.button('Resume').click();
  await lines.getByText('again-1', { exact: true }).first().waitFor();
  await page.getByRole('link', { name: 'Tasks' }).click();
  await until('it ends with its page', async () => (await running()) === 0);
}

/** Records of `audit.log` with the values NAME-1, NAME-2 and so on. */
async function insertMany(name: string, count: number): Promise<void> {
  const rows = Array.from({ length: count }, (_, index) => `('${name}-${index + 1}')`);
  await ask('memlane', 'sql', '-c', `INSERT INTO "audit.log" (value) VALUES ${rows.join(', ')}`);
}

/** A record is written as it was typed, and who may not write is told before. */
async function producesRecord(own: Console): Promise<void> {
  const { page } = own;
  await ask(
    'memlane',
    'sql',
    '-c',
    'CREATE MATERIALIZED VIEW sums AS SELECT key, count(*) AS n FROM orders GROUP BY key',
  );
  await own.visit('log/sums', 'sums');
  await own.button('Produce a record').click();
  await page.getByRole('alert').filter({ hasText: 'You cannot write to this topic' }).waitFor();
  check((await page.getByRole('dialog').count()) === 0, 'and is asked for nothing');

  await own.visit('log/orders', 'orders');
  await settled(page);
  const dialog = await own.begin('Produce a record');
  await dialog.fill({ Key: 'hand', Value: '{"by":"hand"}', Headers: 'no colon' });
  await dialog.element.getByText('No header name before a colon').waitFor();
  check(await dialog.submit().isDisabled(), 'headers that are none are not sent');
  await dialog.fill({ Headers: 'trace: cd:34', Partition: '1' });
  check((await dialog.commandLine()).includes('INSERT INTO "orders"'), 'SQL does the same');
  for (const theme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: theme });
    for (const size of [WIDE, FINGER]) {
      await page.setViewportSize(size);
      await checkView(page, `a record to produce, ${theme}, ${size.width} pixels`);
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(WIDE);
  await dialog.confirm();
  await own.told('The record was written to orders.');
  await page.getByText('1 new').waitFor();
  await own.button(/^Newest/).click();
  const records = page.getByRole('group', { name: 'Records' });
  const line = records.getByRole('row').filter({ hasText: '"hand"' });
  await line.getByRole('button').click();
  check((await line.getByRole('cell').first().textContent()) === '1', 'it is in partition 1');
  const opened = records.locator('tr.opened');
  for (const text of ['hand', 'trace', 'cd:34']) await opened.getByText(text).first().waitFor();
}

/** A query is saved and taken up again, and its rows are files, also those that are not shown. */
async function keepsQueries(own: Console): Promise<void> {
  const { page } = own;
  await own.visit('log', 'Topics');
  const text = page.getByLabel('SELECT, SUBSCRIBE or EXPLAIN');
  const ask = async (query: string, said: string): Promise<void> => {
    await text.fill(query);
    await own.button('Run').click();
    await page.getByText(said).waitFor();
  };
  const columns = `key, value, partition, headers->>'no' AS no, '' AS empty`;
  const hand = `SELECT ${columns} FROM orders WHERE key = 'hand'`;
  await ask(hand, 'Done. 1 row.');
  const csv = await savedFile(own, 'CSV');
  const line = 'hand,"{""by"":""hand""}",1,,""';
  check(csv === `key,value,partition,no,empty\r\n${line}\r\n`, `it is CSV: ${csv}`);
  const rows = JSON.parse(await savedFile(own, 'JSON')) as unknown;
  const expected = [{ key: 'hand', value: '{"by":"hand"}', partition: 1, no: null, empty: '' }];
  check(JSON.stringify(rows) === JSON.stringify(expected), `it is JSON: ${JSON.stringify(rows)}`);
  await ask('SELECT 1 AS a, 2 AS a', 'Done. 1 row.');
  await page.getByText('JSON requires distinct column names').waitFor();
  check(await own.button('Save as JSON').isDisabled(), 'no value hides another one');
  await ask('SELECT value FROM "audit.log"', 'Done. 654 rows.');
  check((await savedFile(own, 'CSV')).split('\r\n').length === 656, 'all rows are in the file');

  const kept = page.locator('summary', { hasText: 'Saved and recent queries' });
  await text.fill(hand);
  await kept.click();
  await page.getByLabel('Name of a query').fill('by hand');
  await own.button('Save the query').click();
  await own.button('by hand').waitFor();
  for (const theme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: theme });
    for (const size of [WIDE, FINGER]) {
      await page.setViewportSize(size);
      await checkView(page, `kept queries, ${theme}, ${size.width} pixels`);
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(WIDE);
  await page.reload();
  await page.getByRole('heading', { level: 1, name: 'Topics' }).waitFor();
  await kept.click();
  const earlier = page.locator('ul.earlier button');
  const first = await earlier.first().textContent();
  check(first?.trim() === 'SELECT value FROM "audit.log"', `what was run last is first: ${first}`);
  await earlier.nth(1).click();
  check((await text.inputValue()) === 'SELECT 1 AS a, 2 AS a', 'an earlier query is taken up');
  await own.button('by hand').click();
  check((await text.inputValue()) === hand, 'a saved query is taken up');
  await own.button('Remove by hand').click();
  await own.button('by hand').waitFor({ state: 'detached' });
  await own.button('Clear recent queries').click();
  check((await earlier.count()) === 0, 'earlier queries are forgotten');
}

/** The file that the page gives of a result. */
async function savedFile(own: Console, kind: 'CSV' | 'JSON'): Promise<string> {
  const coming = own.page.waitForEvent('download');
  await own.button(`Save as ${kind}`).click();
  const download = await coming;
  check(download.suggestedFilename() === `query.${kind.toLowerCase()}`, 'it is named after that');
  return readFileSync(await download.path(), 'utf8');
}

async function queries(own: Console): Promise<void> {
  const { page } = own;
  const text = page.getByLabel('SELECT, SUBSCRIBE or EXPLAIN');
  check((await text.inputValue()) === 'SELECT * FROM orders LIMIT 20', 'a query is suggested');
  await text.press('Control+Enter');
  await page.getByText('Done. 4 rows.').waitFor();

  await text.fill('DROP TOPIC orders');
  await own.button('Run').click();
  await page.getByRole('alert').filter({ hasText: 'use SELECT, SUBSCRIBE or EXPLAIN' }).waitFor();

  await text.fill(EXAMPLE);
  await page.getByLabel('Follow changes').check();
  await own.button('Run').click();
  await page.getByText('Following changes.').waitFor();
  await until('there is a row for each symbol', async () => (await result(page)).length === 3);
  await insert('1', 'ACME', 15);
  await until('the sum follows', async () => (await result(page)).includes('ACME 35'));
  check((await result(page)).length === 3, `a sum takes the place of the last one`);
  check((await running()) === 1, 'the broker runs one query');
  await own.button('Stop').click();
  await page.getByText(/^Stopped\. /).waitFor();
  await until('the query ends at the broker', async () => (await running()) === 0);

  await own.button('Run').click();
  await page.getByText('Following changes.').waitFor();
  check((await running()) === 1, 'the broker runs it again');
  await page.getByRole('link', { name: 'Tasks' }).click();
  await page.getByRole('heading', { level: 1, name: 'Tasks' }).waitFor();
  await until('a query ends with its page', async () => (await running()) === 0);
}

async function result(page: Page): Promise<string[]> {
  const rows = page.getByRole('group', { name: 'Result' }).locator('tbody tr');
  const cells = await rows.evaluateAll((all) =>
    all.map((row) => Array.from(row.querySelectorAll('td')).map((it) => it.textContent?.trim())),
  );
  return cells.map((row) => row.join(' '));
}

async function running(): Promise<number> {
  const listed = await ask('memlane', '--json', 'query', 'list');
  const queries = JSON.parse(listed) as { query: string }[];
  return queries.filter((it) => it.query.includes('SUBSCRIBE')).length;
}

async function looksWell(own: Console): Promise<void> {
  const { page } = own;
  for (const theme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: theme });
    for (const size of [WIDE, NARROW]) {
      await page.setViewportSize(size);
      for (const path of ['log', 'log/orders']) {
        await own.visit(path, /Topics|orders/);
        await settled(page);
        await page.getByLabel('SELECT, SUBSCRIBE or EXPLAIN').fill('SELECT * FROM orders');
        await page.locator('summary').last().click();
        await own.button('Run').click();
        await page.getByText('Done. 5 rows.').waitFor();
        await checkView(page, `${path}, ${theme}, ${size.width} pixels`);
      }
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(WIDE);
}
