/** What people do on the console's pages, in their words. */
import type { Locator, Page } from 'playwright-core';
import { check } from './browser.ts';

export interface Fixture {
  origin: string;
  administrator: string;
  password: string;
  /** Of the one-time link; empty once it was used. */
  code: string;
  /** The kernel's command line of a guest that runs the script on its volume. */
  kernelArgs: string;
}

export class Console {
  constructor(
    readonly page: Page,
    readonly fixture: Fixture,
  ) {}

  async open(path: string): Promise<void> {
    await this.page.goto(`${this.fixture.origin}/#/${path}`);
  }

  /** Opens a page of who is logged in, and waits for its heading. */
  async visit(path: string, heading: string | RegExp): Promise<void> {
    await this.open(path);
    await this.page.getByRole('heading', { level: 1, name: heading }).waitFor();
  }

  async logIn(name = this.fixture.administrator, password = this.fixture.password): Promise<void> {
    await this.logInTo('Overview', name, password);
  }

  /** Logs somebody in who sees the page of this heading first. */
  async logInTo(heading: string, name: string, password: string): Promise<void> {
    await this.open('overview');
    await this.enter(heading, name, password);
  }

  /** Logs somebody in where the page asks for it. */
  async enter(heading: string, name: string, password: string): Promise<void> {
    await this.page.getByLabel('Name').fill(name);
    await this.page.getByLabel('Password').fill(password);
    await this.page.getByRole('button', { name: 'Log in' }).click();
    await this.page.getByRole('heading', { level: 1, name: heading }).waitFor();
  }

  async logOut(): Promise<void> {
    await this.page.getByRole('button', { name: 'Log out' }).click();
    await this.page.getByRole('heading', { level: 1, name: 'Log in' }).waitFor();
  }

  button(name: string | RegExp): Locator {
    return this.page.getByRole('button', { name, exact: typeof name === 'string' });
  }

  /** Opens the dialog behind a button. */
  async begin(button: string | RegExp): Promise<Dialog> {
    await this.button(button).click();
    const dialog = this.page.getByRole('dialog');
    await dialog.waitFor();
    return new Dialog(dialog);
  }

  /** A message that something was done. */
  async told(text: string | RegExp): Promise<void> {
    await this.page.locator('.notices').getByText(text).last().waitFor();
  }

  row(text: string | RegExp): Locator {
    return this.page.getByRole('row').filter({ hasText: text });
  }
}

export class Dialog {
  constructor(readonly element: Locator) {}

  async fill(fields: Record<string, string>): Promise<void> {
    for (const [label, value] of Object.entries(fields)) {
      const field = this.element.getByLabel(label, { exact: false }).first();
      if ((await field.evaluate((it) => it.tagName)) === 'SELECT') await field.selectOption(value);
      else await field.fill(value);
    }
  }

  async check(label: string): Promise<void> {
    await this.element.getByLabel(label).first().check();
  }

  submit(): Locator {
    return this.element.locator('button[type=submit]');
  }

  /** Does it, and waits until the dialog has gone. */
  async confirm(): Promise<void> {
    await this.submit().click();
    await this.element.waitFor({ state: 'hidden' });
  }

  /** Types the name that is asked for; the button must not work before. */
  async confirmByName(name: string): Promise<void> {
    check(await this.submit().isDisabled(), `the button waits for the name ${name}`);
    check((await this.element.locator('.losses li').count()) > 0, 'the dialog says what is lost');
    await this.element.getByLabel(`Type ${name} to confirm`).fill(name);
    await this.confirm();
  }

  /** What became of each of several things, once all is told. */
  async outcomes(): Promise<string[]> {
    await this.element.getByRole('columnheader', { name: 'Result' }).waitFor();
    const rows = await this.element
      .locator('tbody tr')
      .evaluateAll((all) =>
        all.map((row) => Array.from(row.children).map((it) => it.textContent?.trim())),
      );
    return rows.map((cells) => cells.join(': '));
  }

  async cancel(): Promise<void> {
    await this.element.getByRole('button', { name: 'Cancel' }).click();
    await this.element.waitFor({ state: 'hidden' });
  }

  /** The command line that the dialog shows for what is filled in. */
  async commandLine(): Promise<string> {
    const details = this.element.locator('details.same');
    if (!(await details.evaluate((it) => (it as HTMLDetailsElement).open))) {
      await details.locator('summary').click();
    }
    return (await this.element.locator('figure.code code').first().textContent()) ?? '';
  }
}
