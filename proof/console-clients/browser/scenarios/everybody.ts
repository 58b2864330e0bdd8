/**
 * For everybody: axe finds nothing on any page, light or dark, wide or 360 pixels narrow; all is
 * done by keyboard alone; and a page comes soon, with little script and no chart it does not need.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask, note } from '../host.ts';

const NARROW = { width: 360, height: 740 };
const WIDE = { width: 1280, height: 900 };
const FINGER = { width: 390, height: 844 };
const SCRIPT_BYTES_MAX = 200 * 1024;
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
/** More of them than any page has. */
const TABS_MAX = 120;

export const PAGES: [path: string, heading: RegExp][] = [
  ['overview', /Overview/],
  ['volumes', /Volumes/],
  ['volumes/seen', /seen/],
  ['machines', /Virtual machines/],
  ['images', /Images/],
  ['tasks', /Tasks/],
  ['log', /Topics/],
  ['administration/users', /Users/],
  ['administration/projects', /Projects/],
  ['administration/tokens', /Tokens/],
  ['administration/audit', /Audit/],
  ['administration/password', /Own password/],
  ['administration/two-factor', /Two-factor login/],
  ['administration/configuration', /Configuration/],
  ['nowhere', /Page not found/],
];

/** Volumes, a snapshot and a task, so that no page is empty. */
export async function populate(): Promise<void> {
  await ask('memlane', 'volume', 'create', 'seen', '--size', '64MiB');
  await ask('write', 'seen', String(8 << 20), '3');
  await ask('memlane', 'snapshot', 'create', 'seen@before');
  await ask('write', 'seen', String(1 << 20), '4');
  await ask('memlane', 'image', 'save', 'seen');
}

export async function cleanUp(): Promise<void> {
  await ask('memlane', 'snapshot', 'delete', 'seen@before');
  await ask('memlane', 'volume', 'delete', 'seen');
}

/** Also: nothing is asked of a service that the console was started without. */
export async function axe(fixture: Fixture): Promise<void> {
  await populate();
  let views = 0;
  const absent: string[] = [];
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    page.on('response', (response) => {
      if (response.status() === 404) absent.push(response.url());
    });
    const checkPage = async (page: Page, name: string): Promise<void> => {
      await checkView(page, name);
      views += 1;
    };
    await own.open('overview');
    await page.getByRole('heading', { level: 1, name: 'Log in' }).waitFor();
    await checkPage(page, 'login');
    await own.logIn();
    for (const theme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme: theme });
      for (const size of [WIDE, NARROW]) {
        await page.setViewportSize(size);
        for (const [path, heading] of PAGES) {
          await own.visit(path, heading);
          await settled(page);
          await checkPage(page, `${path}, ${theme}, ${size.width} pixels`);
        }
        await own.visit('volumes/seen', /seen/);
        for (const button of ['Delete', 'Change settings', 'Take a snapshot']) {
          const dialog = await own.begin(button);
          await dialog.commandLine();
          await checkPage(page, `${button}, ${theme}, ${size.width} pixels`);
          await dialog.cancel();
        }
      }
    }
  });
  check(absent.length === 0, `all that is asked for is served, and not ${absent.join(', ')}`);
  note(`axe looked at ${views} views and found nothing`);
  await cleanUp();
}

/** Waits until all parts of a page have come. */
export async function settled(page: Page): Promise<void> {
  await until('all has come', async () => (await page.getByText('Loading…').count()) === 0);
}

/** Fails on what axe finds, and where a page is wider than the window. */
export async function checkView(page: Page, name: string): Promise<void> {
  const isLoaded = await page.evaluate(() => 'axe' in window);
  if (!isLoaded) {
    const path = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
    await page.evaluate(readFileSync(path, 'utf8'));
  }
  // A theme that was just changed fades in: axe would judge colours that are between two.
  await page.evaluate(() => document.getAnimations().forEach((it) => it.finish()));
  const found = await page.evaluate(async (rules) => {
    interface Found {
      violations: { id: string; nodes: { html: string; failureSummary: string }[] }[];
    }
    const { axe } = window as unknown as { axe: { run(o: object): Promise<Found> } };
    const { violations } = await axe.run({ runOnly: { type: 'tag', values: rules } });
    return violations.map(
      ({ id, nodes }) => `${id}: ${nodes[0]?.html} ${nodes[0]?.failureSummary}`,
    );
  }, RULES);
  check(found.length === 0, `axe finds nothing on ${name}: ${found.join('\n')}`);
  const overflow = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  check(overflow <= 0, `${name} is not wider than the window: ${overflow} pixels too wide`);
  const wide = await page.evaluate(() => {
    const cards = Array.from(document.querySelectorAll('.card'));
    return cards.filter((it) => it.scrollWidth > it.clientWidth).map((it) => it.textContent);
  });
  check(wide.length === 0, `no card of ${name} is wider than its place: ${wide.join('\n')}`);
  const unreached = await page.evaluate(() => {
    const used = 'a, button, input, select, textarea, summary, [role=button], [role=link]';
    const all = Array.from(document.querySelectorAll<HTMLElement>(used));
    const seen = all.filter((it) => it.checkVisibility({ visibilityProperty: true }));
    const on = seen.filter((it) => !it.matches(':disabled') && it.closest('[inert]') === null);
    return on.filter((it) => it.tabIndex < 0).map((it) => it.outerHTML);
  });
  check(unreached.length === 0, `the keyboard reaches all of ${name}: ${unreached.join('\n')}`);
}

/** The same in both themes, on a wide screen and on one as wide as a finger. */
export async function looksWell(page: Page, what: string): Promise<void> {
  for (const theme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: theme });
    for (const size of [WIDE, FINGER]) {
      await page.setViewportSize(size);
      await checkView(page, `${what}, ${theme}, ${size.width} pixels`);
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(WIDE);
}

/** From the login to a deleted volume without a mouse. */
export async function keyboard(fixture: Fixture): Promise<void> {
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await own.open('overview');
    await page.getByRole('heading', { level: 1, name: 'Log in' }).waitFor();
    await tabTo(page, 'Name');
    await page.keyboard.type(fixture.administrator);
    await page.keyboard.press('Tab');
    await page.keyboard.type(fixture.password);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();

    await tabTo(page, 'Volumes');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Volumes' }).waitFor();
    await until('the heading has the focus', async () => (await focused(page)) === 'Volumes');
    await tabTo(page, 'Create a volume');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await tabTo(page, 'Name (required)');
    await page.keyboard.type('by-keys');
    await tabTo(page, 'Size (required)');
    await page.keyboard.press('Control+A');
    await page.keyboard.type('32MiB');
    await page.keyboard.press('Enter');
    await own.told('by-keys was created.');
    await until('the focus is back', async () => (await focused(page)) === 'Create a volume');

    await own.row('by-keys').waitFor();
    await tabTo(page, 'by-keys');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'by-keys' }).waitFor();
    await tabTo(page, 'Delete');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
    await until('the focus is back', async () => (await focused(page)) === 'Delete');
    await tabTo(page, 'Delete');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await tabTo(page, 'Type by-keys to confirm');
    await page.keyboard.type('by-keys');
    await page.keyboard.press('Enter');
    await own.told('by-keys was deleted.');
  });
}

/** The name of what has the focus, as a screen reader has it from labels and text. */
async function focused(page: Page): Promise<string> {
  return page.evaluate(() => {
    const element = document.activeElement;
    const labels = (element as HTMLInputElement | null)?.labels;
    const text = labels && labels.length > 0 ? labels[0]?.textContent : element?.textContent;
    return (text ?? '').replace(/\s+/g, ' ').trim();
  });
}

async function tabTo(page: Page, name: string): Promise<void> {
  for (let tabs = 0; tabs < TABS_MAX; tabs += 1) {
    await page.keyboard.press('Tab');
    if ((await focused(page)) !== name) continue;
    const isVisible = await page.evaluate(() => {
      const style = getComputedStyle(document.activeElement ?? document.body);
      return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
    });
    check(isVisible, `the focus is seen on ${name}`);
    return;
  }
  throw new Error(`the keyboard does not come to ${name}`);
}

/** What comes over the line, and when the first of it is seen. */
export async function weight(fixture: Fixture): Promise<void> {
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    const scripts = new Map<string, number>();
    page.on('response', async (response) => {
      if (!response.url().endsWith('.js')) return;
      const { responseBodySize } = await response.request().sizes();
      scripts.set(new URL(response.url()).pathname, responseBodySize);
    });
    await own.open('overview');
    await page.getByRole('heading', { level: 1, name: 'Log in' }).waitFor();
    const atLogin = scripts.size;
    await own.logIn();
    await page.locator('figure.chart canvas').first().waitFor();
    await until('the charts came by themselves', async () => scripts.size > atLogin);
    const bytes = [...scripts.values()].reduce((sum, one) => sum + one, 0);
    check(bytes < SCRIPT_BYTES_MAX, `all scripts have ${bytes} bytes`);
    await page.reload();
    await page.locator('figure.chart canvas').first().waitFor();
    const paint = await page.evaluate(() => {
      return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null;
    });
    check(paint !== null, 'something was painted');
    const kib = (bytes / 1024).toFixed(1);
    note(`first contentful paint after ${paint?.toFixed(0)} ms, ${kib} KiB of compressed script`);
  });
}
