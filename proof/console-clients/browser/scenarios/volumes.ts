/** Everything that is done to volumes and their snapshots. */
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask } from '../host.ts';

const MIB = 1 << 20;

export async function volumes(fixture: Fixture): Promise<void> {
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await own.logIn();
    await create(own);
    await change(own);
    await use(own);
    await remove(own);
  });
}

async function create(own: Console): Promise<void> {
  await own.visit('volumes', 'Volumes');
  const dialog = await own.begin('Create a volume');
  await dialog.fill({ Name: 'no/name', Size: '64MiB' });
  await dialog.submit().click();
  await own.page.locator('#field-name-problem').waitFor();
  check(
    (await own.page.locator('#field-name').getAttribute('aria-invalid')) === 'true',
    'the field to blame is marked',
  );
  await dialog.fill({ Name: 'web-a', Durability: 'image' });
  await dialog.confirm();
  await own.told('web-a was created.');
  await own.row('web-a').getByText('64.0 MiB').waitFor();
  const second = await own.begin('Create a volume');
  await second.fill({ Name: 'web-b', Size: '32MiB' });
  await second.confirm();
  await own.row('web-b').waitFor();

  const names = async (): Promise<string[]> =>
    own.page
      .locator('tbody th a')
      .filter({ hasText: /^web-[ab]$/ })
      .allTextContents();
  await own.button(/Sort by Size/).click();
  check((await names()).join() === 'web-b,web-a', 'the smaller one is first');
  await own.button(/Sort by Size/).click();
  check((await names()).join() === 'web-a,web-b', 'the larger one is first');
  await own.page.getByRole('searchbox').fill('WEB-B');
  await until('the filter hides the other', async () => (await names()).join() === 'web-b');
  await own.page.getByRole('searchbox').fill('');
}

async function change(own: Console): Promise<void> {
  await own.page.getByRole('link', { name: 'web-a', exact: true }).click();
  await own.page.getByRole('heading', { level: 1, name: 'web-a' }).waitFor();

  let dialog = await own.begin('Resize');
  await dialog.fill({ 'New size': '128MiB' });
  await dialog.confirm();
  await own.page.locator('dd', { hasText: '128 MiB' }).waitFor();

  dialog = await own.begin('Change settings');
  await dialog.fill({ Reduction: 'compress', 'Ring users': '65534' });
  const command = await dialog.commandLine();
  check(command === 'memlane volume set web-a reduction=compress users=65534', command);
  await dialog.confirm();
  await own.page.locator('dd', { hasText: 'compress: compress only' }).waitFor();
  check((await ask('memlane', 'volume', 'show', 'web-a')).includes('compress'), 'it was set');

  dialog = await own.begin('Clone the volume');
  await dialog.fill({ 'Name of the new volume': 'web-c' });
  await dialog.confirm();
  await own.told('web-a was cloned to web-c.');
  check((await ask('memlane', 'volume', 'show', 'web-c')).includes('128'), 'the clone is there');
}

async function use(own: Console): Promise<void> {
  await ask('write', 'web-a', String(4 * MIB), '1');
  let dialog = await own.begin('Take a snapshot');
  await dialog.fill({ Snapshot: 'monday' });
  await dialog.check('web-b');
  await dialog.confirm();
  await own.row('monday').waitFor();
  check((await ask('memlane', 'snapshot', 'list')).includes('web-b@monday'), 'both were taken');

  await ask('write', 'web-a', String(2 * MIB), '2');
  await own.button('Compare web-a@monday').click();
  await own.page.getByText(/2\.00 MiB differ/).waitFor();

  dialog = await own.begin('Clone web-a@monday');
  await dialog.fill({ 'Name of the new volume': 'web-d' });
  await dialog.confirm();
  check((await ask('check', 'web-d', String(4 * MIB), '1')) === 'same', 'the clone is as it was');

  dialog = await own.begin('Restore web-a@monday');
  await dialog.confirmByName('web-a');
  await own.told('web-a was restored to monday.');
  check((await ask('check', 'web-a', String(4 * MIB), '1')) === 'same', 'it is as it was');

  dialog = await own.begin('Rename web-a@monday');
  await dialog.fill({ 'New name': 'tuesday' });
  await dialog.confirm();
  await own.row('tuesday').waitFor();
  await own.page
    .getByText(/restored|snapshot/i)
    .first()
    .waitFor();

  dialog = await own.begin('Delete web-a@tuesday');
  await dialog.confirmByName('web-a@tuesday');
  await own.row('tuesday').waitFor({ state: 'detached' });
}

async function remove(own: Console): Promise<void> {
  let dialog = await own.begin('Rename');
  await dialog.fill({ 'New name': 'web-z' });
  await dialog.confirm();
  await own.row('web-z').waitFor();

  await own.page.getByRole('link', { name: 'web-b', exact: true }).click();
  await own.page.getByRole('heading', { level: 1, name: 'web-b' }).waitFor();
  await own.row('monday').waitFor();
  dialog = await own.begin('Delete');
  await dialog.element.getByLabel('Type web-b to confirm').fill('web-b');
  await dialog.submit().click();
  // It has a snapshot: the daemon's reason is shown, and nothing is changed.
  await dialog.element.getByRole('alert').waitFor();
  await dialog.cancel();
  dialog = await own.begin('Delete web-b@monday');
  await dialog.confirmByName('web-b@monday');
  await own.row('monday').waitFor({ state: 'detached' });

  for (const name of ['web-z', 'web-b', 'web-c', 'web-d']) {
    await own.visit(`volumes/${name}`, name);
    dialog = await own.begin('Delete');
    await dialog.confirmByName(name);
    await own.told(`${name} was deleted.`);
    await own.page.getByRole('heading', { level: 1, name: 'Volumes' }).waitFor();
  }
  check(!(await ask('memlane', 'volume', 'list')).includes('web-'), 'all are gone');
}
