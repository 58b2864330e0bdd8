/** The guide after the set-up: a volume is made, attached and seen to move; and who does not want it. */
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask } from '../host.ts';
import { looksWell, settled } from './everybody.ts';

const PASSWORD = 'a long password of vera';

export async function firstRun(fixture: Fixture): Promise<void> {
  const mayAttach = (await ask('may-attach')) === 'yes';
  await ask('memlane', 'topic', 'create', 'orders');
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    const guide = page.getByRole('region', { name: 'Your first volume' });
    const done = guide.getByText('done', { exact: true });
    await own.logIn();
    await own.visit('administration/users', /Users/);
    for (const [name, role] of [
      ['vera', 'viewer'],
      ['olga', 'operator'],
    ] as const) {
      const dialog = await own.begin('Add a user');
      await dialog.fill({ Name: name, Password: PASSWORD, Role: role });
      await dialog.confirm();
      await own.row(name).waitFor();
    }
    await own.visit('volumes', 'Volumes');
    await own.row('memlane-broker').first().waitFor();
    await own.visit('overview', 'Overview');
    await guide.waitFor();
    await looksWell(page, 'the guide before a volume');
    const made = await own.begin('Create the first volume');
    check((await made.commandLine()).startsWith('memlane volume create first '), 'it has a name');
    await made.fill({ Size: '64MiB' });
    await made.confirm();
    await guide.getByText('first, 64.0 MiB.').waitFor();
    await page.reload();
    await guide.getByText('first, 64.0 MiB.').waitFor();
    await looksWell(page, 'the guide with a volume');
    await ask('write', 'first', String(1 << 20), '7');
    await guide.getByText('1.00 MiB were written').waitFor();
    // Who is attached is not served by NBD, by which the volume was written.
    if (mayAttach) {
      await (await own.begin('Attach first')).confirm();
      await guide.getByText(/^It is \/dev\//).waitFor();
    }
    check((await done.count()) === (mayAttach ? 3 : 2), 'each step is noticed');
    await looksWell(page, 'the guide at its end');
    await guide.getByRole('link', { name: 'Open the page of first' }).click();
    await page.getByRole('heading', { level: 1, name: 'first' }).waitFor();
    await own.visit('overview', 'Overview');
    await guide.getByRole('button', { name: 'Finish' }).click();
    await guide.waitFor({ state: 'detached' });

    await own.logOut();
    await own.logIn('olga', PASSWORD);
    await isNotGuided(own, 'who comes when there are volumes');
    if (mayAttach) await ask('memlane', 'detach', 'first');
    await ask('memlane', 'volume', 'delete', 'first');
    await guide.waitFor();
    await guide.getByRole('button', { name: 'Do not show this again' }).click();
    await guide.waitFor({ state: 'detached' });
    await page.reload();
    await isNotGuided(own, 'who did not want it');
    await own.logOut();
    await own.logIn('vera', PASSWORD);
    await isNotGuided(own, 'who may make no volume');
  });
}

async function isNotGuided({ page }: Console, who: string): Promise<void> {
  await page.getByRole('region', { name: 'Capacity', exact: true }).waitFor();
  await settled(page);
  await until('volumes are known', async () => {
    return /\d+ volumes?/.test(
      (await page.getByRole('region', { name: 'Daemon' }).textContent()) ?? '',
    );
  });
  check((await page.getByText('Your first volume').count()) === 0, `${who} is not guided`);
}
