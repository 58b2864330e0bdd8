/** Pictures of the pages, for the guide. */
import { join } from 'node:path';
import { withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask } from '../host.ts';
import { populate, settled, cleanUp } from './everybody.ts';
import { EXAMPLE, populateTopics } from './log.ts';
import { populateMachines, cleanUpMachines } from './machines.ts';

const SIZE = { width: 1440, height: 900 };
/** Below what a page shows, where it shows little. */
const MARGIN = 24;

export async function pictures(fixture: Fixture): Promise<void> {
  const folder = process.env['MEMLANE_PICTURES'];
  if (!folder) throw new Error('MEMLANE_PICTURES names the folder of the pictures');
  await populate();
  await ask('memlane', 'volume', 'create', 'shop-db', '--size', '10GiB', '--durability', 'image');
  await ask('write', 'shop-db', String(96 << 20), '5');
  await ask('memlane', 'clone', 'shop-db', 'shop-db-test');
  await ask('memlane', 'snapshot', 'create', 'shop-db-test@before-upgrade');
  await populateTopics();
  await ask('begin-io', 'shop-db-test');
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await page.setViewportSize(SIZE);
    const take = async (name: string): Promise<void> => {
      const path = join(folder, `console-${name}.png`);
      const end = await page.evaluate(() => {
        return document.querySelector('main')?.getBoundingClientRect().bottom ?? Infinity;
      });
      const height = Math.min(SIZE.height, Math.ceil(end) + MARGIN);
      await page.screenshot({ path, clip: { x: 0, y: 0, width: SIZE.width, height } });
    };
    await own.logIn();
    await own.visit('administration/users', /Users/);
    for (const [name, role] of [
      ['maria', 'operator'],
      ['tom', 'viewer'],
    ] as const) {
      const dialog = await own.begin('Add a user');
      await dialog.fill({ Name: name, Password: fixture.password, Role: role });
      await dialog.confirm();
      await own.row(name).waitFor();
    }
    await own.visit('overview', 'Overview');
    await page.getByRole('button', { name: 'Dismiss' }).first().click();
    await page.getByRole('button', { name: 'Dismiss' }).first().click();
    await page.locator('figure.chart canvas').first().waitFor();
    await page.waitForTimeout(20_000);
    await take('overview');
    await page.getByRole('heading', { name: 'Activity' }).scrollIntoViewIfNeeded();
    await page.locator('figure.chart').first().scrollIntoViewIfNeeded();
    await take('activity');
    await populateMachines(fixture);
    for (const [name, path, heading] of [
      ['volumes', 'volumes', /Volumes/],
      ['volume', 'volumes/shop-db-test', /shop-db-test/],
      ['machines', 'machines', /Virtual machines/],
      ['images', 'images', /Images/],
      ['tasks', 'tasks', /Tasks/],
      ['administration', 'administration/users', /Users/],
    ] as const) {
      await own.visit(path, heading);
      await settled(page);
      if (name === 'volume') {
        await own.row('before-upgrade').waitFor();
        await page.locator('figure.chart canvas').first().waitFor();
      }
      await take(name);
    }
    await cleanUpMachines();
    await own.visit('log', 'Topics');
    await own.row('billing').waitFor();
    await page.getByLabel('SELECT, SUBSCRIBE or EXPLAIN').fill(EXAMPLE);
    await page.getByLabel('Follow changes').check();
    await own.button('Run').click();
    await own.row('ACME').waitFor();
    await page.setViewportSize({ ...SIZE, height: 1000 });
    await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
    await page.evaluate(() => scrollTo(0, 0));
    const path = join(folder, 'console-log.png');
    await page.screenshot({ path });
    await page.setViewportSize(SIZE);
    await own.visit('log/orders', 'orders');
    await page.getByRole('group', { name: 'Records' }).getByRole('button').first().click();
    await take('topic');
    await page.emulateMedia({ colorScheme: 'dark' });
    await own.visit('volumes/seen', /seen/);
    const dialog = await own.begin('Delete');
    await dialog.commandLine();
    await take('delete');
  });
  await ask('end-io');
  await cleanUp();
}
