/**
 * A new password ends the other sessions of its user, and says which tokens go on; an administrator
 * ends a session from the list.
 */
import { check, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';

const FIRST_PASSWORD = 'a long password of kim';
const NEXT_PASSWORD = 'another password of kim';

export async function sessions(fixture: Fixture): Promise<void> {
  await withBrowser(fixture.origin, async ({ page }) => {
    const administrator = new Console(page, fixture);
    await administrator.logIn();
    await administrator.visit('administration/users', /Users/);
    const dialog = await administrator.begin('Add a user');
    await dialog.fill({ Name: 'kim', Password: FIRST_PASSWORD, Role: 'operator' });
    await dialog.confirm();
    await withBrowser(fixture.origin, async ({ page: first }) => {
      await withBrowser(fixture.origin, async ({ page: second }) => {
        await change(new Console(first, fixture), new Console(second, fixture));
      });
      await administrator.visit('administration/sessions', /Sessions/);
      await administrator.row('kim').getByText('127.0.0.1', { exact: true }).waitFor();
      const end = await administrator.begin(/^End kim,/);
      await end.confirm();
      await administrator.row('kim').waitFor({ state: 'detached' });
      await first.getByText('The session has ended.').waitFor();
    });
    await administrator.visit('administration/tokens', /Tokens/);
    await administrator.row('of-kim').getByText('kim', { exact: true }).waitFor();
    await administrator.visit('administration/users', /Users/);
    const deletion = await administrator.begin('Delete kim');
    await deletion.confirmByName('kim');
    await administrator.visit('administration/tokens', /Tokens/);
    await administrator.page.getByText('There are no tokens.').waitFor();
  });
}

async function change(own: Console, other: Console): Promise<void> {
  await own.logIn('kim', FIRST_PASSWORD);
  await other.logIn('kim', FIRST_PASSWORD);
  await own.visit('administration/tokens', /Tokens/);
  let dialog = await own.begin('Create a token');
  await dialog.fill({ Name: 'of-kim', Role: 'viewer' });
  await dialog.submit().click();
  await own.page.getByText('It is shown only once.').waitFor();
  await dialog.element.getByRole('button', { name: 'Close' }).click();

  await own.visit('administration/password', /Own password/);
  dialog = await own.begin('Change the password');
  await dialog.fill({ 'Current password': FIRST_PASSWORD, 'New password': NEXT_PASSWORD });
  await dialog.confirm();
  await own.told('Ended: 1 other session. Still valid: 1 token.');
  await other.page.getByText('The session has ended.').waitFor();
  await own.page.getByRole('link', { name: 'Show tokens' }).click();
  await own.row('of-kim').waitFor();
  check((await own.button('Log out').count()) === 1, 'who changed it stays');
}
