/** Users, projects, tokens, the audit log, the own password and the configuration. */
import { request } from 'playwright-core';
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';

const FIRST_PASSWORD = 'a long password of eve';
const NEXT_PASSWORD = 'another password of eve';

export async function administration(fixture: Fixture): Promise<void> {
  await withBrowser(fixture.origin, async ({ page, context }) => {
    const own = new Console(page, fixture);
    await own.logIn();
    await projects(own);
    await users(own);

    await own.visit('administration/tokens', /Tokens/);
    let dialog = await own.begin('Create a token');
    await dialog.fill({ Name: 'ci', Role: 'viewer', 'Days until': '1' });
    await dialog.submit().click();
    await page.getByText('It is shown only once.').waitFor();
    const secret = (await dialog.element.locator('code').textContent()) ?? '';
    check(secret !== '', 'the secret is shown');
    await dialog.element.getByRole('button', { name: 'Close' }).click();
    await own.row('ci').getByText('viewer').waitFor();
    await until('the secret has gone', async () => !(await page.content()).includes(secret));
    const script = await request.newContext({
      ignoreHTTPSErrors: true,
      extraHTTPHeaders: { authorization: `Bearer ${secret}` },
    });
    const url = `${fixture.origin}/v1/volumes`;
    const read = await script.get(url);
    check(read.status() === 200, `the token reads: ${read.status()}`);
    const written = await script.post(url, { data: { name: 'of-a-viewer', size: '4MiB' } });
    check(written.status() === 403, `a viewer's token changes nothing: ${written.status()}`);

    await context.clearCookies();
    await own.open('volumes');
    await page.getByText('The session has ended.').waitFor();
    await own.logIn();
    await own.visit('administration/tokens', /Tokens/);
    dialog = await own.begin('Delete ci');
    await dialog.confirmByName('ci');
    await own.row('ci').waitFor({ state: 'detached' });
    const refused = await script.get(url);
    check(refused.status() === 401, `a deleted token is refused: ${refused.status()}`);

    await script.dispose();

    await own.visit('administration/audit', /Audit/);
    await own.row('/console/v1/tokens').first().waitFor();
    await page.getByLabel('Path contains').fill('/console/v1/users/eve');
    await own.button('Show').click();
    await own.row('/console/v1/tokens').first().waitFor({ state: 'detached' });
    const changed = own.row('PATCH').first();
    await changed.getByText(/before .*"role":"viewer"/).waitFor();
    await changed.getByText(/after .*"role":"operator"/).waitFor();
    check(!(await page.content()).includes(FIRST_PASSWORD), 'no secret is in the audit log');

    await own.visit('administration/configuration', /Configuration/);
    await own.row('NBD socket').getByText('nbd.sock').waitFor();
    dialog = await own.begin('Resize the pool');
    await dialog.fill({ Memory: '1GiB' });
    await dialog.confirm();
    await own.row('Pool size').getByText('1.00 GiB').waitFor();
  });
}

async function projects(own: Console): Promise<void> {
  await own.visit('administration/projects', /Projects/);
  let dialog = await own.begin('Add a project');
  await dialog.fill({ Name: 'shop', Prefix: 'shop-', Quota: '1' });
  await dialog.confirm();
  await own.row('shop-').getByText('1.00 GiB').waitFor();
  dialog = await own.begin('Change shop');
  await dialog.fill({ Quota: '2' });
  await dialog.confirm();
  await own.row('shop-').getByText('2.00 GiB').waitFor();
}

async function users(own: Console): Promise<void> {
  const { page } = own;
  await own.visit('administration/users', /Users/);
  let dialog = await own.begin('Add a user');
  await dialog.fill({ Name: 'eve', Password: FIRST_PASSWORD, Role: 'viewer' });
  await dialog.confirm();
  await own.row('eve').getByText('viewer').waitFor();
  await own.logOut();

  await own.logIn('eve', FIRST_PASSWORD);
  await own.visit('volumes', 'Volumes');
  check((await own.button('Create a volume').count()) === 0, 'a viewer creates nothing');
  await own.visit('administration/users', /Administration/);
  check((await page.getByRole('link', { name: 'Audit' }).count()) === 0, 'nor reads the audit');
  await own.visit('administration/password', /Own password/);
  dialog = await own.begin('Change the password');
  await dialog.fill({ 'Current password': 'not this one', 'New password': NEXT_PASSWORD });
  await dialog.submit().click();
  await dialog.element.getByRole('alert').waitFor();
  await dialog.fill({ 'Current password': FIRST_PASSWORD });
  await dialog.confirm();
  await own.logOut();
  await own.logIn('eve', NEXT_PASSWORD);
  await own.logOut();

  await own.logIn();
  await own.visit('administration/users', /Users/);
  dialog = await own.begin('Change eve');
  await dialog.fill({ Role: 'operator' });
  await dialog.check('shop');
  await dialog.confirm();
  await own.row('eve').getByText('operator').waitFor();
  dialog = await own.begin('Delete eve');
  await dialog.confirmByName('eve');
  await own.row('eve').waitFor({ state: 'detached' });
  await own.visit('administration/projects', /Projects/);
  dialog = await own.begin('Delete shop');
  await dialog.confirmByName('shop');
  await own.row('shop-').waitFor({ state: 'detached' });
}
