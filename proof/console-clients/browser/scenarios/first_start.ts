/** The first start: a one-time link makes the administrator, and then nobody else. */
import { check, withBrowser } from '../browser.ts';
import { Console, type Site } from '../console.ts';

export async function firstStart(site: Site): Promise<void> {
  await withBrowser(site.origin, async ({ page }) => {
    const own = new Console(page, site);
    await page.goto(`${site.origin}/#/setup/${site.code}`);
    await page.getByLabel('Name of the administrator').fill(site.administrator);
    await page.getByLabel('Password', { exact: true }).fill(site.password);
    await page.getByLabel('Repeat the password').fill(`${site.password}?`);
    await page.getByRole('button', { name: /Create the administrator/ }).click();
    await page.getByText('The two passwords differ.').waitFor();
    await page.getByLabel('Repeat the password').fill(site.password);
    await page.getByRole('button', { name: /Create the administrator/ }).click();
    await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
    check(!page.url().includes(site.code), 'the code has left the address');

    await own.logOut();
    await page.getByLabel('Name').fill(site.administrator);
    await page.getByLabel('Password').fill('wrong, wrong and wrong');
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByText('Name, password or code is wrong.').waitFor();
    check((await page.getByLabel('Password').inputValue()) === '', 'the password is taken away');
    await own.logIn();
    await own.logOut();

    await page.goto(`${site.origin}/#/setup/${site.code}`);
    await page.getByLabel('Password', { exact: true }).fill(site.password);
    await page.getByLabel('Repeat the password').fill(site.password);
    await page.getByRole('button', { name: /Create the administrator/ }).click();
    await page.getByRole('alert').waitFor();
    const heading = page.getByRole('heading', { level: 1, name: 'Create the first administrator' });
    check(await heading.isVisible(), 'the link works once');
  });
}
