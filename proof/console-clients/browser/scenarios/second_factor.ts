/**
 * A user turns two-factor login on with an authenticator, logs in with its codes and a recovery
 * code, and turns it off; an administrator resets it, or requires it of all. Axe finds nothing on the
 * way.
 */
import { createHmac } from 'node:crypto';
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { looksWell } from './everybody.ts';

const PASSWORD = 'a long password of nora';
const STEP_MS = 30_000;
const REQUIRED = 'Two-factor login is required';
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';

/** Makes codes of a secret, as RFC 6238 says, and none twice. */
class Authenticator {
  private readonly key: Buffer;
  private shown = 0;

  constructor(secret: string) {
    const bits = [...secret].map((it) => LETTERS.indexOf(it).toString(2).padStart(5, '0')).join('');
    this.key = Buffer.from(bits.match(/.{8}/g)?.map((it) => parseInt(it, 2)) ?? []);
  }

  async code(): Promise<string> {
    const now = (): number => Math.floor(Date.now() / STEP_MS);
    // The next one counts already, for clocks that differ.
    await until('there is another code', async () => now() + 1 > this.shown);
    this.shown = Math.max(this.shown + 1, now());
    const step = Buffer.alloc(8);
    step.writeBigUInt64BE(BigInt(this.shown));
    const tag = createHmac('sha1', this.key).update(step).digest();
    const number = tag.readUInt32BE((tag[19] ?? 0) & 0xf) & 0x7fffffff;
    return String(number % 1_000_000).padStart(6, '0');
  }
}

export async function secondFactor(fixture: Fixture): Promise<void> {
  await withBrowser(fixture.origin, async ({ page }) => {
    const administrator = new Console(page, fixture);
    await administrator.logIn();
    await administrator.visit('administration/users', /Users/);
    const dialog = await administrator.begin('Add a user');
    await dialog.fill({ Name: 'nora', Password: PASSWORD, Role: 'viewer' });
    await dialog.confirm();
    await withBrowser(fixture.origin, async ({ page: first }) => {
      const own = new Console(first, fixture);
      await own.logIn('nora', PASSWORD);
      await own.visit('administration/two-factor', /Two-factor login/);
      await use(own, await enrol(own, PASSWORD));
      await enrol(own, PASSWORD);
      await own.page.getByText('Two-factor login is on. Left: 10 recovery codes.').waitFor();
    });
    await administrator.row('nora').getByText('on', { exact: true }).waitFor();
    const reset = await administrator.begin('Reset two-factor login nora');
    await reset.confirmByName('nora');
    await administrator.told('Two-factor login of nora was reset.');
    await withBrowser(fixture.origin, async ({ page: last }) => {
      await new Console(last, fixture).logIn('nora', PASSWORD);
    });
    const deletion = await administrator.begin('Delete nora');
    await deletion.confirmByName('nora');
  });
}

/** An administrator who has it requires it of all: who has none sees nothing but the way to it. */
export async function required(fixture: Fixture): Promise<void> {
  await withBrowser(fixture.origin, async ({ page }) => {
    const administrator = new Console(page, fixture);
    await administrator.logIn();
    await administrator.visit('administration/users', /Users/);
    const dialog = await administrator.begin('Add a user');
    await dialog.fill({ Name: 'nora', Password: PASSWORD, Role: 'viewer' });
    await dialog.confirm();
    const refused = await administrator.begin('Require two-factor login');
    await refused.submit().click();
    await refused.element.getByText('you have no second factor yourself').waitFor();
    await refused.cancel();
    await administrator.visit('administration/two-factor', /Two-factor login/);
    await enrol(administrator, fixture.password);
    await withBrowser(fixture.origin, async ({ page: early }) => {
      const nora = new Console(early, fixture);
      await nora.logIn('nora', PASSWORD);
      // This page asks for nothing: that its stream ends is all that it hears of the rule.
      await nora.visit('tasks', 'Tasks');
      await administrator.visit('administration/users', /Users/);
      await (await administrator.begin('Require two-factor login')).confirm();
      await administrator.told('Two-factor login is now required of all users.');
      await page.getByText('Required. 1 user has not turned it on yet.').waitFor();
      await looksWell(page, 'users of whom two-factor login is required');
      // Who was logged in already, too, without another login.
      await early.getByRole('heading', { level: 1, name: REQUIRED }).waitFor();
      const streams: string[] = [];
      early.on('request', (request) => {
        if (request.url().endsWith('/console/v1/events')) streams.push(request.url());
      });
      await nora.open('volumes');
      check((await early.getByRole('navigation').count()) === 0, 'there is no way to other pages');
      await looksWell(early, 'an enrolment that is required');
      // It would load the session again, and take the recovery codes away.
      check(streams.length === 0, 'nothing is asked for that is refused until the end of it');
      await enrol(nora, PASSWORD);
      await early.getByRole('heading', { level: 1, name: 'Volumes' }).waitFor();
    });
    await page.getByText('Required. All users have it on.').waitFor();
    await (await administrator.begin('Make it optional')).confirm();
    await administrator.told('Two-factor login is optional now.');
  });
}

interface Enrolled {
  authenticator: Authenticator;
  recoveryCodes: string[];
}

/** On a page where it can be turned on. */
async function enrol(own: Console, password: string): Promise<Enrolled> {
  const { page } = own;
  const dialog = await own.begin('Turn on');
  await dialog.fill({ 'Current password': 'not her password' });
  await dialog.submit().click();
  await dialog.element.getByText('wrong password').waitFor();
  await dialog.fill({ 'Current password': password });
  await dialog.confirm();
  await page.getByRole('img', { name: 'QR code of the secret' }).waitFor();
  await looksWell(page, 'an enrolment');
  const shown = page.locator('figure.code code');
  const [secret, uri] = await shown.allTextContents();
  check(uri?.includes(`secret=${secret}&`) === true, `the address has the secret: ${uri}`);
  const authenticator = new Authenticator(secret ?? '');
  await page.getByLabel('Code of the app').fill('12345');
  await own.button('Confirm').click();
  await page.getByText('wrong or expired code').waitFor();
  await page.getByLabel('Code of the app').fill(await authenticator.code());
  await own.button('Confirm').click();
  await own.told(/Two-factor login is on/);
  await looksWell(page, 'recovery codes');
  const recoveryCodes = ((await shown.textContent()) ?? '').split('\n');
  check(recoveryCodes.length === 10, `there are recovery codes: ${recoveryCodes.length}`);
  await own.button('I have stored them').click();
  return { authenticator, recoveryCodes };
}

async function use(own: Console, { authenticator, recoveryCodes }: Enrolled): Promise<void> {
  const { page } = own;
  const logIn = async (code: string): Promise<void> => {
    await page.getByLabel('Name').fill('nora');
    await page.getByLabel('Password').fill(PASSWORD);
    await page.getByLabel('Code').fill(code);
    await page.getByRole('button', { name: 'Log in' }).click();
  };
  await own.logOut();
  await logIn('');
  await page.getByText('Name, password or code is wrong.').waitFor();
  await looksWell(page, 'a login that was refused');
  await logIn(await authenticator.code());
  await page.getByRole('heading', { level: 1, name: /Two-factor|Overview/ }).waitFor();
  await own.logOut();
  await logIn(recoveryCodes[4] ?? '');
  await page.getByRole('heading', { level: 1, name: /Two-factor|Overview/ }).waitFor();
  await own.visit('administration/two-factor', /Two-factor login/);
  await page.getByText('Two-factor login is on. Left: 9 recovery codes.').waitFor();
  const dialog = await own.begin('Turn off');
  await dialog.fill({ 'Current password': PASSWORD, Code: recoveryCodes[0] ?? '' });
  await dialog.confirm();
  await page.locator('#contents').getByText('Two-factor login is off.').waitFor();
}
