/** Images and the tasks that save, verify and restore them. */
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask } from '../host.ts';

const MIB = 1 << 20;
const PASSWORD = 'a long password of otto';

export async function images(fixture: Fixture): Promise<void> {
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
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
    await page.getByText(/Saving an image takes/).waitFor();

    // The journal goes on from the newest image, which therefore stays.
    await own.visit('images', 'Images');
    dialog = await own.begin('Save an image');
    await dialog.fill({ Label: 'second one' });
    await dialog.confirm();
    await done(own, 'Save an image');
    await own.visit('images', 'Images');
    await own.row('second one').waitFor();
    await operatorsSaveAndVerifyAlone(own, number);
    dialog = await own.begin(`Delete ${number}`);
    await dialog.confirmByName(number);
    await own.row('first one').waitFor({ state: 'detached' });
    await ask('memlane', 'volume', 'delete', 'kept');
    await ask('memlane', 'volume', 'delete', 'kept-again');
  });
}

/** Who may neither restore nor delete an image has no button for it. */
async function operatorsSaveAndVerifyAlone(own: Console, number: string): Promise<void> {
  await own.visit('administration/users', /Users/);
  const dialog = await own.begin('Add a user');
  await dialog.fill({ Name: 'otto', Password: PASSWORD, Role: 'operator' });
  await dialog.confirm();
  await own.row('otto').waitFor();
  await own.logOut();
  await own.logIn('otto', PASSWORD);
  await own.visit('images', 'Images');
  await own.button(`Verify ${number}`).waitFor();
  for (const name of [`Restore ${number}`, `Delete ${number}`]) {
    check((await own.button(name).count()) === 0, `an operator has no button ${name}`);
  }
  await own.logOut();
  await own.logIn();
  await own.visit('images', 'Images');
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
