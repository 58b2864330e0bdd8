/** The first start: a one-time link makes the administrator, and then nobody else. */
import { check, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';

export async function firstStart(fixture: Fixture): Promise<void> {
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await page.goto(`${fixture.origin}/#/setup/${fixture.code}`);
    await page.getByLabel('Name of the administrator').fill(fixture.administrator);
    await page.getByLabel('Password', { exact: true }).fill(fixture.password);
    await page.getByLabel('Repeat the password').fill(`${fixture.password}?`);
    await page.getByRole('button', { name: /Create the administrator/ }).click();
    await page.getByText('The two passwords differ.').waitFor();
    await page.getByLabel('Repeat the password').fill(fixture.password);
    await page.getByRole('button', { name: /Create the administrator/ }).click();
    await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
    check(!page.url().includes(fixture.code), 'the code has left the address');

    await own.logOut();
    await page.getByLabel('Name').fill(fixture.administrator);
    await page.getByLabel('Password').fill('wrong, wrong and wrong');
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByText('Name, password or code is wrong.').waitFor();
    check((await page.getByLabel('Password').inputValue()) === '', 'the password is taken away');
    await own.logIn();
    await own.logOut();

    await page.goto(`${fixture.origin}/#/setup/${fixture.code}`);
    await page.getByLabel('Password', { exact: true }).fill(fixture.password);
    await page.getByLabel('Repeat the password').fill(fixture.password);
    await page.getByRole('button', { name: /Create the administrator/ }).click();
    await page.getByRole('alert').waitFor();
    const heading = page.getByRole('heading', { level: 1, name: 'Create the first administrator' });
    check(await heading.isVisible(), 'the link works once');
  });
}
