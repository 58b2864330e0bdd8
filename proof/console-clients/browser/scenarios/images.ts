/** Images and the tasks that save, verify and restore them. */
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Site } from '../console.ts';
import { ask } from '../host.ts';

const MIB = 1 << 20;

export async function images(site: Site): Promise<void> {
  await withBrowser(site.origin, async ({ page }) => {
    const own = new Console(page, site);
    await ask('memlane', 'volume', 'create', 'kept', '--size', '64MiB');
    await ask('write', 'kept', String(4 * MIB), '7');
    await own.logIn();
    await own.visit('volumes', 'Volumes');
    await own.row('kept').waitFor();
    await own.visit('images', 'Images');

    let dialog = await own.begin('Save an image');
    await dialog.fill({ Label: 'first one' });
    await dialog.check('kept');
    await dialog.confirm();
    await done(own, 'Save an image');

    await own.visit('images', 'Images');
    await own.row('first one').getByText('kept').waitFor();
    const number = (await own.row('first one').getByRole('rowheader').textContent()) ?? '';
    dialog = await own.begin(`Verify ${number}`);
    await dialog.confirm();
    await done(own, 'Verify an image');

    await own.visit('images', 'Images');
    dialog = await own.begin(`Restore ${number}`);
    await dialog.check('kept');
    await dialog.fill({ 'Under another name': 'kept-again' });
    await dialog.confirm();
    await done(own, 'Fetch an image');
    check((await ask('check', 'kept-again', String(4 * MIB), '7')) === 'same', 'it came back');

    await own.visit('images', 'Images');
    dialog = await own.begin('Rehearse');
    await dialog.confirm();
    await done(own, 'Rehearse a save');
    await own.visit('overview', 'Overview');
    await page.getByText(/Saving takes/).waitFor();

    // The journal goes on from the newest image, which therefore stays.
    await own.visit('images', 'Images');
    dialog = await own.begin('Save an image');
    await dialog.fill({ Label: 'second one' });
    await dialog.confirm();
    await done(own, 'Save an image');
    await own.visit('images', 'Images');
    await own.row('second one').waitFor();
    dialog = await own.begin(`Delete ${number}`);
    await dialog.confirmByName(number);
    await own.row('first one').waitFor({ state: 'detached' });
    await ask('memlane', 'volume', 'delete', 'kept');
    await ask('memlane', 'volume', 'delete', 'kept-again');
  });
}

/** Tasks are shown, the newest first, and their states come by themselves. */
async function done(own: Console, kind: string): Promise<void> {
  await own.page.getByRole('heading', { level: 1, name: 'Tasks' }).waitFor();
  const row = own.row(kind).first();
  await until(`${kind} is done`, async () => {
    const text = (await row.count()) > 0 ? await row.innerText() : '';
    check(!/failed|cancelled/.test(text), text);
    return /\bdone\b/.test(text);
  });
}
