/** Groups of consumers: their lag in each partition, and resets of their offsets. */
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Dialog, type Fixture } from '../console.ts';
import { ask } from '../host.ts';
import { checkView, settled } from './everybody.ts';

const WIDE = { width: 1280, height: 900 };
const FINGER = { width: 390, height: 844 };
const PASSWORD = 'a long password of vera';
const RECORDS = 6;

export async function groups(fixture: Fixture): Promise<void> {
  await ask('memlane', 'topic', 'create', 'orders', '--partitions', '2');
  await ask('memlane', 'topic', 'create', 'audit');
  const rows = Array.from({ length: RECORDS }, (_, index) => `('${index}', ${index % 2})`);
  const insert = `INSERT INTO orders (value, partition) VALUES ${rows.join(', ')}`;
  await ask('memlane', 'sql', '-c', insert);
  await ask('memlane', 'consume', 'orders', '--group', 'billing');
  await ask('memlane', 'group', 'reset', 'billing', '--topic', 'audit', '--to', 'earliest');
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await own.logIn();
    await own.visit('log', 'Topics');
    await page
      .getByRole('group', { name: 'Consumer groups' })
      .getByRole('link', { name: 'billing' })
      .first()
      .click();
    await page.getByRole('heading', { level: 1, name: 'billing' }).waitFor();
    await until('offsets are shown', async () => (await lines(own)).length === 3);
    same(await lines(own), ['audit 0 0 0 0', 'orders 0 3 3 0', 'orders 1 3 3 0']);
    await ask('memlane', 'sql', '-c', "INSERT INTO orders (value, partition) VALUES ('x', 1)");
    await until('the lag grows', async () => (await lines(own))[2] === 'orders 1 3 4 1');
    await resets(own);
    await leavesMembersAlone(own);
    await looksWell(own);
    await own.visit('administration/users', /Users/);
    const dialog = await own.begin('Add a user');
    await dialog.fill({ Name: 'vera', Password: PASSWORD, Role: 'viewer' });
    await dialog.confirm();
    await own.visit('groups/nobody', 'nobody');
    await page.getByText('Group nobody not found').waitFor();
    await own.logOut();
  });
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await own.logIn('vera', PASSWORD);
    await own.visit('groups/billing', 'billing');
    await page.getByText('Resetting offsets requires the role operator.').waitFor();
    check((await own.button('Reset offsets').count()) === 0, 'who looks has no button for it');
  });
}

/** The cells of each partition. */
async function lines(own: Console): Promise<string[]> {
  const rows = own.page.getByRole('group', { name: 'Offsets' }).locator('tbody tr');
  const texts = await rows.evaluateAll((all) =>
    all.map((row) => Array.from(row.children).map((it) => it.textContent?.trim())),
  );
  return texts.map((cells) => cells.join(' '));
}

function same(seen: string[], expected: string[]): void {
  check(seen.join() === expected.join(), `it shows ${expected.join()}: ${seen.join()}`);
}

async function losses(dialog: Dialog): Promise<string[]> {
  const texts = await dialog.element.locator('.losses li').allTextContents();
  return texts.map((text) => text.trim());
}

/** Each kind of place, with one confirmation that says what becomes of the group. */
async function resets(own: Console): Promise<void> {
  const earliest = await own.begin('Reset offsets');
  await earliest.fill({ Topics: 'orders' });
  same(await losses(earliest), [
    'The committed offsets of 2 partitions',
    '6 offsets will be read again',
  ]);
  const line = await earliest.commandLine();
  check(line === 'memlane group reset billing --to earliest --topic orders', `it says ${line}`);
  await earliest.confirm();
  await own.told('The offsets of billing were reset in 2 partitions.');
  await shows(own, ['audit 0 0 0 0', 'orders 0 0 3 3', 'orders 1 0 4 4']);

  const latest = await own.begin('Reset offsets');
  await latest.fill({ 'Reset to': 'latest' });
  same(await losses(latest), [
    'The committed offsets of 3 partitions',
    '7 offsets will be skipped',
  ]);
  await latest.confirm();
  await shows(own, ['audit 0 0 0 0', 'orders 0 3 3 0', 'orders 1 4 4 0']);

  const offset = await own.begin('Reset offsets');
  await offset.fill({ 'Reset to': 'offset' });
  check(await offset.submit().isDisabled(), 'it waits for an offset');
  await offset.element.getByLabel('Offset (required)').fill('2');
  await offset.confirm();
  await shows(own, ['audit 0 0 0 0', 'orders 0 2 3 1', 'orders 1 2 4 2']);

  const time = await own.begin('Reset offsets');
  await time.fill({ 'Reset to': 'time' });
  await time.element.getByLabel('Time (required)').fill('yesterday');
  await time.element.getByText('Not a time such as').waitFor();
  check(await time.submit().isDisabled(), 'what is no time is not sent');
  await time.element.getByLabel('Time (required)').fill('2020-01-01T00:00:00Z');
  await time.confirm();
  await shows(own, ['audit 0 0 0 0', 'orders 0 0 3 3', 'orders 1 0 4 4']);
}

async function shows(own: Console, expected: string[]): Promise<void> {
  await until(`it shows ${expected.join()}`, async () => {
    return (await lines(own)).join() === expected.join();
  });
}

/** A group that is being read is refused, and the dialog says what the broker says. */
async function leavesMembersAlone(own: Console): Promise<void> {
  const { page } = own;
  await ask('begin-consumer', 'orders', 'billing');
  const end = ['audit 0 0 0 0', 'orders 0 3 3 0', 'orders 1 4 4 0'];
  await shows(own, end);
  await page.locator('dl').getByText('Stable').waitFor();
  const dialog = await own.begin('Reset offsets');
  await dialog.element.getByText('The group has 1 member;').waitFor();
  await dialog.submit().click();
  const refusal = dialog.element.getByRole('alert');
  for (const text of ['while the group is inactive', 'UNKNOWN_MEMBER_ID']) {
    await refusal.getByText(text).waitFor();
  }
  await dialog.cancel();
  same(await lines(own), end);
  await ask('end-consumer');
  await page.locator('dl').getByText('Empty').waitFor();
  await (await own.begin('Reset offsets')).confirm();
  await shows(own, ['audit 0 0 0 0', 'orders 0 0 3 3', 'orders 1 0 4 4']);
}

async function looksWell(own: Console): Promise<void> {
  const { page } = own;
  for (const theme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: theme });
    for (const size of [WIDE, FINGER]) {
      await page.setViewportSize(size);
      await own.visit('groups/billing', 'billing');
      await settled(page);
      await checkView(page, `a group, ${theme}, ${size.width} pixels`);
      const dialog = await own.begin('Reset offsets');
      await dialog.commandLine();
      await checkView(page, `a reset, ${theme}, ${size.width} pixels`);
      await dialog.cancel();
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(WIDE);
}
