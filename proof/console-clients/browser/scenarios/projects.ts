/** Somebody who is limited to a project: what they see, and what they are spared. */
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask } from '../host.ts';
import { checkView } from './everybody.ts';

const PASSWORD = 'a long password of sam';

export async function projects(fixture: Fixture): Promise<void> {
  await ask('memlane', 'volume', 'create', 'private', '--size', '64MiB');
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await own.logIn();
    await own.visit('administration/projects', /Projects/);
    let dialog = await own.begin('Add a project');
    await dialog.fill({ Name: 'team', Prefix: 'team-', Quota: '0.125' });
    await dialog.confirm();
    await own.visit('administration/users', /Users/);
    dialog = await own.begin('Add a user');
    await dialog.fill({ Name: 'sam', Password: PASSWORD, Role: 'operator' });
    await dialog.check('team');
    await dialog.confirm();
    await own.logOut();

    const refused: string[] = [];
    page.on('response', (response) => {
      const isRead = response.request().method() === 'GET';
      if (isRead && response.status() === 403) refused.push(response.url());
    });
    await own.logInTo('Volumes', 'sam', PASSWORD);
    await limited(own);
    check(refused.length === 0, `the page asks for nothing in vain: ${refused.join()}`);
    await own.logOut();

    await own.logIn();
    await own.visit('administration/users', /Users/);
    dialog = await own.begin('Delete sam');
    await dialog.confirmByName('sam');
    await own.visit('administration/projects', /Projects/);
    dialog = await own.begin('Delete team');
    await dialog.confirmByName('team');
  });
  await ask('memlane', 'volume', 'delete', 'private');
}

async function limited(own: Console): Promise<void> {
  const { page } = own;
  await page.getByText('Volumes of your projects: team.').waitFor();
  await page.getByText('No volumes yet.').waitFor();
  const links = await page.getByRole('navigation', { name: 'Pages' }).getByRole('link').count();
  check(links === 2, `the pages are volumes and administration: ${links}`);

  let dialog = await own.begin('Create a volume');
  const prefix = dialog.element.getByLabel('Name').first();
  check((await prefix.inputValue()) === 'team-', 'a new name begins with the prefix');
  await dialog.fill({ Name: 'other', Size: '64MiB' });
  await dialog.submit().click();
  await dialog.element.getByText('has none of the prefixes of your projects: team-').waitFor();
  await dialog.fill({ Name: 'team-a', Size: '256MiB' });
  await dialog.submit().click();
  await dialog.element.getByText('is exceeded: 134217728 bytes').waitFor();
  await dialog.fill({ Size: '64MiB' });
  await dialog.confirm();
  await own.row('team-a').waitFor();
  check((await own.row('private').count()) === 0, 'the volume of others is not shown');

  await own.visit('volumes/team-a', 'team-a');
  await own.button('Resize').waitFor();
  for (const button of ['Attach', 'Export to virtual machines']) {
    check((await own.button(button).count()) === 0, `${button} is for those who see the host`);
  }
  dialog = await own.begin('Take a snapshot');
  await dialog.fill({ Snapshot: 'one' });
  await dialog.confirm();
  await own.row('one').waitFor();
  await checkView(page, 'a volume of a project');
  dialog = await own.begin('Delete team-a@one');
  await dialog.confirmByName('team-a@one');
  dialog = await own.begin('Delete');
  await dialog.confirmByName('team-a');
  await page.getByText('No volumes yet.').waitFor();

  await own.visit('administration/tokens', /Tokens/);
  dialog = await own.begin('Create a token');
  await dialog.fill({ Name: 'of-sam', Role: 'operator' });
  await dialog.check('team');
  await dialog.submit().click();
  await page.getByText('It is shown only once.').waitFor();
  await dialog.element.getByRole('button', { name: 'Close' }).click();
  await own.row('of-sam').getByText('team').waitFor();
  for (const path of ['images', 'tasks', 'nowhere']) {
    await own.visit(path, /Page not found/);
  }
  await until('the figures still come', async () => {
    await own.visit('overview', 'Volumes');
    return page.getByText('No volumes yet.').isVisible();
  });
}
