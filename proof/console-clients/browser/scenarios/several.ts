/** What is done to several volumes by one confirmation, and told of each by its name. */
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask } from '../host.ts';
import { looksWell } from './everybody.ts';

const NAMES = ['bulk-a', 'bulk-b', 'bulk-c', 'bulk-d'];
const PASSWORD = 'a long password of vera';

export async function several(fixture: Fixture): Promise<void> {
  for (const name of NAMES) await ask('memlane', 'volume', 'create', name, '--size', '64MiB');
  await ask('memlane', 'snapshot', 'create', 'bulk-b@kept');
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await own.logIn();
    await own.visit('volumes', 'Volumes');
    await selects(own);
    await takesSnapshots(own);
    await deletes(own);
    await own.visit('administration/users', /Users/);
    const dialog = await own.begin('Add a user');
    await dialog.fill({ Name: 'vera-looks', Password: PASSWORD, Role: 'viewer' });
    await dialog.confirm();
    await own.logOut();
    await own.logIn('vera-looks', PASSWORD);
    await own.visit('volumes', 'Volumes');
    await own.row('bulk-b').waitFor();
    check((await page.getByRole('checkbox').count()) === 0, 'who looks has nothing to select');
    await own.logOut();
    await own.logIn();
    await own.visit('administration/users', /Users/);
    await (await own.begin('Delete vera-looks')).confirmByName('vera-looks');
  });
  await ask('memlane', 'snapshot', 'delete', 'bulk-b@kept');
  await ask('memlane', 'snapshot', 'delete', 'bulk-b@nightly');
  await ask('memlane', 'volume', 'delete', 'bulk-b');
}

function box(own: Console, name: string) {
  return own.page.getByRole('checkbox', { name: `Select ${name}`, exact: true });
}

/** What the filter hides is selected no longer, as nobody sees it. */
async function selects(own: Console): Promise<void> {
  const { page } = own;
  await page.getByRole('searchbox').fill('bulk-');
  await page.getByRole('checkbox', { name: 'Select all that are listed' }).check();
  const chosen = page.getByRole('status').filter({ hasText: 'selected' });
  await chosen.getByText('4 volumes selected').waitFor();
  await page.getByRole('searchbox').fill('bulk-a');
  await chosen.getByText('1 volume selected').waitFor();
  await page.getByRole('searchbox').fill('bulk-');
  await box(own, 'bulk-d').uncheck();
  await chosen.getByText('3 volumes selected').waitFor();
  await looksWell(own.page, 'selected volumes');
}

async function takesSnapshots(own: Console): Promise<void> {
  await ask('memlane', 'snapshot', 'create', 'bulk-a@nightly');
  const dialog = await own.begin('Take snapshots');
  await dialog.fill({ Snapshot: 'nightly' });
  const line = await dialog.commandLine();
  const expected = ['a', 'b', 'c'].map((it) => `memlane snapshot create bulk-${it}@nightly`);
  check(line === expected.join('; '), `the command line has each: ${line}`);
  await dialog.submit().click();
  const seen = await dialog.outcomes();
  check(/exists|already/.test(seen[0] ?? ''), `the first one is told as refused: ${seen.join()}`);
  check(seen.slice(1).join() === 'bulk-b@nightly: Done,bulk-c@nightly: Done', seen.join());
  await dialog.element.getByText('1 of 3 failed.').waitFor();
  await dialog.element.getByRole('button', { name: 'Close' }).click();
  const listed = await ask('memlane', '--json', 'snapshot', 'ls');
  for (const it of expected) {
    check(listed.includes(it.split(' ').at(-1) ?? '-'), `${it} was done: ${listed}`);
  }
  check(!(await box(own, 'bulk-a').isChecked()), 'nothing is selected afterwards');
  for (const it of ['bulk-a', 'bulk-c'])
    await ask('memlane', 'snapshot', 'delete', `${it}@nightly`);
}

/** One has a snapshot, and one has gone meanwhile: both are told of, and the others are deleted. */
async function deletes(own: Console): Promise<void> {
  for (const name of NAMES) await box(own, name).check();
  const dialog = await own.begin('Delete selected');
  check(await dialog.submit().isDisabled(), 'it waits for what has to be typed');
  await dialog.element.getByText('bulk-a, bulk-b, bulk-c, bulk-d').waitFor();
  await looksWell(own.page, 'a confirmation for several');
  await dialog.element.getByLabel('Type 4 volumes to confirm').fill('4 volumes');
  await ask('memlane', 'volume', 'delete', 'bulk-c');
  await dialog.submit().click();
  const seen = await dialog.outcomes();
  check(seen[0] === 'bulk-a: Done' && seen[3] === 'bulk-d: Done', seen.join());
  check(/^bulk-b: .*snapshot/.test(seen[1] ?? ''), `a refusal is told in words: ${seen[1]}`);
  check(/^bulk-c: .*(no volume|not found|does not exist)/.test(seen[2] ?? ''), seen[2] ?? '');
  await dialog.element.getByText('2 of 4 failed.').waitFor();
  await looksWell(own.page, 'outcomes');
  await dialog.element.getByRole('button', { name: 'Close' }).click();
  await until('those that were deleted go', async () => (await own.row('bulk-').count()) === 1);
  await own.row('bulk-b').waitFor();
}
