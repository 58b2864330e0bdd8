/** The first screen: what an operator asks in the morning, without scrolling, and still true later. */
import type { Page } from 'playwright-core';
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask } from '../host.ts';
import { checkView, settled } from './everybody.ts';
import { populateTopics } from './log.ts';

const WIDE = { width: 1440, height: 900 };
const NARROW = { width: 390, height: 844 };
const CARDS = [
  'Daemon',
  'If power failed now',
  'Capacity',
  'Requests to volumes',
  'Topics',
  'Virtual machines',
];
/** As long as names may be. */
const LONG_NAME = 'n'.repeat(63);

export async function overview(fixture: Fixture): Promise<void> {
  await populateTopics();
  await ask('memlane', 'volume', 'create', 'shop', '--size', '64MiB', '--durability', 'image');
  await ask('write', 'shop', String(8 << 20), '3');
  await ask('memlane', 'volume', 'create', LONG_NAME, '--size', '64MiB');
  await ask('begin-io', LONG_NAME, '2');
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await page.setViewportSize(WIDE);
    await own.logIn();
    await tellsHealthFirst(page);
    await looksWell(own);
    await keepsWhatTheBrokerTold(page);
  });
}

async function tellsHealthFirst(page: Page): Promise<void> {
  await card(page, 'If power failed now').getByText('would be lost').waitFor();
  await card(page, 'Capacity').getByText(/used/).waitFor();
  await card(page, 'Topics').getByRole('row').filter({ hasText: 'billing' }).waitFor();
  await card(page, 'Virtual machines').getByText('not set up').waitFor();
  await page.locator('figure.chart canvas').first().waitFor();
  const slowest = page.getByRole('table', { name: 'Slowest volumes' });
  await slowest.getByRole('row').filter({ hasText: LONG_NAME }).waitFor();
  for (const name of CARDS) {
    const box = await card(page, name).boundingBox();
    const end = (box?.y ?? Infinity) + (box?.height ?? Infinity);
    check(end <= WIDE.height, `${name} is on the first screen: it ends at ${end}`);
  }
  const chart = await page.locator('figure.chart').first().boundingBox();
  check((chart?.y ?? Infinity) < WIDE.height, 'charts begin on the first screen');
  await ask('end-io');
}

async function looksWell(own: Console): Promise<void> {
  const { page } = own;
  for (const theme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: theme });
    for (const size of [WIDE, NARROW]) {
      await page.setViewportSize(size);
      await own.visit('overview', 'Overview');
      await settled(page);
      await checkView(page, `overview, ${theme}, ${size.width} pixels`);
      await own.visit('volumes', 'Volumes');
      await own.row(LONG_NAME).waitFor();
      await checkView(page, `volumes, ${theme}, ${size.width} pixels`);
    }
  }
  const link = page.getByRole('link', { name: LONG_NAME });
  const height = async (): Promise<number> => (await link.boundingBox())?.height ?? 0;
  const cut = await height();
  check((await link.getAttribute('title')) === LONG_NAME, 'a pointer is told the whole name');
  await page.getByRole('searchbox').focus();
  await until('the keyboard comes to the long name, and all of it is shown', async () => {
    await page.keyboard.press('Tab');
    return (await height()) > cut;
  });
  await page.getByRole('button', { name: 'Menu' }).click();
  await page.getByRole('link', { name: 'Overview' }).click();
  await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(WIDE);
}

async function keepsWhatTheBrokerTold(page: Page): Promise<void> {
  const topics = card(page, 'Topics');
  const billing = topics.getByRole('row').filter({ hasText: 'billing' });
  await billing.waitFor();
  await ask('kill-broker');
  await topics.getByText(/^as of /).waitFor();
  check(await billing.isVisible(), 'what was told last is still shown');
  await ask('start-broker');
  await topics.getByText(/^as of /).waitFor({ state: 'detached' });
  await billing.waitFor();
}

function card(page: Page, name: string) {
  return page.getByRole('region', { name, exact: true });
}
