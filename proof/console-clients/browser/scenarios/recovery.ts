/** The daemon and the console die and come back while the page is open. */
import { check, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask } from '../host.ts';
import { settled } from './everybody.ts';

export async function recovery(fixture: Fixture): Promise<void> {
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await ask('memlane', 'volume', 'create', 'survivor', '--size', '64MiB');
    await own.logIn();
    await own.visit('volumes', 'Volumes');
    await own.row('survivor').waitFor();

    await ask('kill-daemon');
    await page.getByText('The daemon does not answer.').waitFor();
    check(await own.row('survivor').isVisible(), 'what was known last is still shown');
    const dialog = await own.begin('Create a volume');
    await dialog.fill({ Name: 'too-early', Size: '64MiB' });
    await dialog.submit().click();
    await dialog.element.getByRole('alert').waitFor();
    check(await dialog.element.isVisible(), 'what was typed is kept');

    await ask('start-daemon');
    await page.getByText('The daemon does not answer.').waitFor({ state: 'hidden' });
    await own.told('The daemon is back.');
    // The same dialog does what it could not do before.
    await dialog.confirm();
    await own.row('too-early').waitFor();

    await isTrueWhileTheDaemonIsAway(own);
    await ask('kill-console');
    await page.getByText('The console does not answer.').waitFor();
    await ask('start-console');
    // Sessions are lost with it; the page asks for a login by itself, and shows what it showed.
    await page.getByText('The session has ended.').waitFor();
    await own.enter('Volumes', fixture.administrator, fixture.password);
    await own.row('survivor').waitFor();
    await own.row('too-early').waitFor();
    await ask('memlane', 'volume', 'delete', 'too-early');
    await own.row('too-early').waitFor({ state: 'detached' });
  });
}

/** Also for who opens a page meanwhile: nothing is said that nobody knows, and nothing hangs. */
async function isTrueWhileTheDaemonIsAway(own: Console): Promise<void> {
  const { page } = own;
  await own.visit('overview', 'Overview');
  const risk = page.getByRole('region', { name: 'If power failed now' });
  await risk.locator('.figure').waitFor();
  await ask('kill-daemon');
  await risk.getByText(/^as of /).waitFor();
  check(await risk.locator('.stale .figure').isVisible(), 'what was told last is grey');
  await page.reload();
  for (const [path, heading, claim] of [
    ['overview', 'Overview', 'healthy'],
    ['tasks', 'Tasks', 'No tasks running'],
    ['volumes', 'Volumes', 'No volumes yet'],
    ['volumes/survivor', 'survivor', 'survivor not found'],
    ['images', 'Images', 'No images yet'],
  ] as const) {
    await own.visit(path, heading);
    await page.getByText(/The page retries automatically/).waitFor();
    await settled(page);
    check((await page.getByText(claim).count()) === 0, `${path} does not say: ${claim}`);
  }
  await own.visit('volumes', 'Volumes');
  await ask('start-daemon');
  await own.row('survivor').waitFor();
}
