/** Topics that are deleted: one on its page, and several by one confirmation that names them. */
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask } from '../host.ts';
import { looksWell, settled } from './everybody.ts';

const NAMES = ['bulk-a', 'bulk-b', 'bulk-c', 'kept'];
const PASSWORD = 'a long password of vera';

export async function topics(fixture: Fixture): Promise<void> {
  for (const name of NAMES) await ask('memlane', 'topic', 'create', name);
  await ask('memlane', 'sql', '-c', `INSERT INTO "bulk-a" (value) VALUES ('x')`);
  await ask('memlane', 'consume', 'bulk-a', '--group', 'readers');
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await own.logIn();
    await own.visit('administration/users', /Users/);
    const dialog = await own.begin('Add a user');
    await dialog.fill({ Name: 'vera', Password: PASSWORD, Role: 'viewer' });
    await dialog.confirm();
    await own.visit('log', 'Topics');
    await deletesSeveral(own);
    await deletesOne(own);
    await own.logOut();
    await own.logIn('vera', PASSWORD);
    await own.visit('log', 'Topics');
    await own.row('kept').waitFor();
    check((await page.getByRole('checkbox').count()) === 0, 'who looks has nothing to select');
    await own.visit('log/kept', 'kept');
    await page.getByText('Deleting topics requires the role operator.').waitFor();
    check((await own.button('Delete').count()) === 0, 'who looks has no button for it');
  });
  const listed = await ask('memlane', '--json', 'topic', 'list');
  check(listed.includes('kept') && !listed.includes('bulk-'), `one is left: ${listed}`);
}

function box(own: Console, name: string) {
  return own.page.getByRole('checkbox', { name: `Select ${name}`, exact: true });
}

/** What the filter hides is kept; one that has gone meanwhile is told of and stops no other. */
async function deletesSeveral(own: Console): Promise<void> {
  const { page } = own;
  await own.row('readers').waitFor();
  await page.getByRole('searchbox').first().fill('bulk-');
  await page.getByRole('checkbox', { name: 'Select all topics that are listed' }).check();
  const chosen = page.getByRole('status').filter({ hasText: 'selected' });
  await chosen.getByText('3 topics selected').waitFor();
  await looksWell(page, 'selected topics');
  await box(own, 'bulk-c').uncheck();
  await chosen.getByText('2 topics selected').waitFor();
  const dialog = await own.begin('Delete selected');
  check(await dialog.submit().isDisabled(), 'it waits for what has to be typed');
  await dialog.element.getByText('bulk-a, bulk-b').waitFor();
  await dialog.element.getByText('Committed offsets of the groups readers.').waitFor();
  const line = await dialog.commandLine();
  check(line === 'memlane topic delete bulk-a; memlane topic delete bulk-b', `it says ${line}`);
  await looksWell(page, 'a confirmation for several topics');
  await dialog.element.getByLabel('Type 2 topics to confirm').fill('2 topics');
  await ask('memlane', 'topic', 'delete', 'bulk-a');
  await dialog.submit().click();
  const seen = await dialog.outcomes();
  check(/^bulk-a: .*UNKNOWN_TOPIC/.test(seen[0] ?? ''), `a refusal is told in words: ${seen[0]}`);
  check(seen[1] === 'bulk-b: Done', seen.join());
  await dialog.element.getByText('1 of 2 failed.').waitFor();
  await looksWell(page, 'outcomes of topics');
  await dialog.element.getByRole('button', { name: 'Close' }).click();
  await until('those that were deleted go', async () => (await own.row('bulk-').count()) === 1);
  check((await own.row('selected').count()) === 0, 'nothing is selected afterwards');
}

async function deletesOne(own: Console): Promise<void> {
  const { page } = own;
  await own.visit('log/bulk-c', 'bulk-c');
  await settled(page);
  const dialog = await own.begin('Delete');
  const line = await dialog.commandLine();
  check(line === 'memlane topic delete bulk-c', `it says ${line}`);
  await looksWell(page, 'the deletion of a topic');
  await dialog.confirmByName('bulk-c');
  await own.told('Topic bulk-c was deleted.');
  await page.getByRole('heading', { level: 1, name: 'Topics' }).waitFor();
  await until('it has gone', async () => (await own.row('bulk-c').count()) === 0);
  await own.row('kept').waitFor();
}
