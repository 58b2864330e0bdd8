/**
 * Virtual machines from their creation to their end, their terminal and their screen, and what is
 * spared those who may only look. There is a volume `golden` with a script for the guest, which
 * writes READY and then HEARD- before each line that it reads.
 */
import type { Page } from 'playwright-core';
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask } from '../host.ts';
import { checkView } from './everybody.ts';

const PASSWORD = 'a long password of vera';
const NARROW = { width: 360, height: 740 };
const WIDE = { width: 1280, height: 900 };
/** Guests may be emulated. */
const GUEST_TIME_LIMIT_MS = 180_000;

const COMMAND =
  'memlane vm create web --clone golden --memory 256MiB --graphics --kernel vmlinuz --initrd initrd';

/** Two machines that run, for pictures. */
export async function populateMachines(fixture: Fixture): Promise<void> {
  const words = ['memlane', 'vm', 'create', 'web', '--clone', 'golden', '--count', '2'];
  const guest = ['--memory', '256MiB', '--kernel', 'vmlinuz', '--initrd', 'initrd'];
  await ask(...words, ...guest, '--kernel-args', fixture.kernelArgs, '--graphics', '--start');
}

export async function cleanUpMachines(): Promise<void> {
  await ask('memlane', 'vm', 'kill', 'web-1', 'web-2');
  await ask('memlane', 'vm', 'delete', 'web-1', 'web-2', '--with-volumes');
}

export async function machines(fixture: Fixture): Promise<void> {
  await ask('memlane', 'volume', 'create', 'extra', '--size', '16MiB');
  await withBrowser(fixture.origin, async ({ page, context }) => {
    const own = new Console(page, fixture);
    await own.logIn();
    await creates(own);
    await speaksToTheGuest(own);
    await takesOver(own, new Console(await context.newPage(), fixture));
    await seesTheScreen(own);
    await changesDisks(own);
    await looksWell(own);
    await own.visit('administration/users', /Users/);
    const dialog = await own.begin('Add a user');
    await dialog.fill({ Name: 'vera', Password: PASSWORD, Role: 'viewer' });
    await dialog.confirm();
    await own.logOut();
  });
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await own.logIn('vera', PASSWORD);
    await onlyLooks(own);
    await own.logOut();
  });
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await own.logIn();
    await ends(own);
  });
  await ask('memlane', 'volume', 'delete', 'extra');
}

async function creates(own: Console): Promise<void> {
  const { page } = own;
  await page.getByRole('link', { name: 'Virtual machines', exact: true }).first().click();
  await page.getByRole('heading', { level: 1, name: 'Virtual machines' }).waitFor();
  await page.getByText('No virtual machines yet.').waitFor();
  const dialog = await own.begin('Create a virtual machine');
  await dialog.fill({ 'First disk': 'volume', Volume: 'extra' });
  check((await dialog.element.getByLabel('Count').count()) === 0, 'a volume is of one machine');
  await dialog.fill({ 'First disk': 'clone_of', Template: 'golden' });
  await dialog.fill({ Name: 'web', Memory: '256MiB' });
  await dialog.check('Graphical console');
  await dialog.element.getByText('Advanced', { exact: true }).click();
  await dialog.fill({ Kernel: 'none-of-that-name' });
  await dialog.submit().click();
  const blamed = dialog.element.locator('[aria-invalid="true"]');
  await blamed.waitFor();
  check((await blamed.getAttribute('id')) === 'field-kernel', 'the kernel is to blame');
  await dialog.fill({ Kernel: 'vmlinuz', 'Initial RAM disk': 'initrd' });
  await dialog.fill({ 'Kernel command line': own.fixture.kernelArgs });
  const command = await dialog.commandLine();
  const same = `${COMMAND} --kernel-args '${own.fixture.kernelArgs}' --start`;
  check(command === same, `the command line does the same: ${command}`);
  await dialog.submit().click();
  await dialog.element.waitFor({ state: 'hidden', timeout: GUEST_TIME_LIMIT_MS });
  await own.told(/^web was created\./);
  await own.row('web').filter({ hasText: 'running' }).waitFor({ timeout: GUEST_TIME_LIMIT_MS });
  const cells = await own.row('web').getByRole('cell').allTextContents();
  const rest = ['running', '1', '256 MiB', '1', 'web', 'by Memlane'];
  check(cells.join() === rest.join(), `it is listed: ${cells.join()}`);
  await page.getByLabel('Filter').fill('nothing of that name');
  await page.getByText('Nothing matches the filter.').waitFor();
  await page.getByLabel('Filter').fill('');
  await own.row('web').getByRole('link').click();
  await page.getByRole('heading', { level: 1, name: 'web' }).waitFor();
}

/** The row of the terminal in which the text stands. */
async function reads(page: Page, text: string): Promise<void> {
  const row = page.locator('.xterm-rows > div').filter({ hasText: text }).first();
  await row.waitFor({ timeout: GUEST_TIME_LIMIT_MS });
}

async function hasFocus(page: Page, name: string): Promise<boolean> {
  return page.evaluate((name) => {
    const element = document.activeElement;
    return (element?.getAttribute('aria-label') ?? element?.textContent?.trim()) === name;
  }, name);
}

async function speaksToTheGuest(own: Console): Promise<void> {
  const { page } = own;
  await own.button('Serial console').click();
  await page.getByText('Connected.', { exact: true }).waitFor();
  await until('the terminal has the focus', () => hasFocus(page, 'Serial console of web'));
  await reads(page, 'READY');
  await page.keyboard.type('hello');
  await page.keyboard.press('Enter');
  await reads(page, 'HEARD-hello');
  await page.getByText(/^To set the size in the guest: stty rows \d+ cols \d+$/).waitFor();
  // Its keys are the guest's.
  await page.keyboard.press('Tab');
  check(await hasFocus(page, 'Serial console of web'), 'Tab goes to the guest');
  await page.keyboard.press('Enter');
  const adopted = await page.evaluate(() => document.adoptedStyleSheets.length);
  check(adopted > 0, 'the styles of the terminal are sheets of the document');
  await page.keyboard.press('Control+]');
  await until('the focus is back', () => hasFocus(page, 'Serial console'));
  check((await page.locator('.xterm').count()) === 0, 'the terminal is gone');
  const left = await page.evaluate(() => document.adoptedStyleSheets.length);
  check(left === 0, `${left} sheets of the terminal are left`);
}

/** One has the terminal, another one asks for it and takes it. */
async function takesOver(first: Console, second: Console): Promise<void> {
  await first.button('Serial console').click();
  await first.page.getByText('Connected.', { exact: true }).waitFor();
  await second.visit('machines/web', 'web');
  await second.button('Serial console').click();
  await second.page.getByText(/^No connection: the terminal of .* is in use/).waitFor();
  await second.button('Take over').click();
  await second.page.getByText('Connected.', { exact: true }).waitFor();
  await first.button('Reconnect').waitFor();
  check((await first.page.locator('.xterm').count()) === 1, 'what came last can be read');
  await second.page.keyboard.type('again');
  await second.page.keyboard.press('Enter');
  await reads(second.page, 'HEARD-again');
  await second.page.close();
  await first.button(/^Close ?: Serial console/).click();
}

async function seesTheScreen(own: Console): Promise<void> {
  const { page } = own;
  await own.button('Screen').click();
  await page.getByText('Connected.', { exact: true }).waitFor();
  const screen = page.getByRole('application', { name: 'Screen of web' });
  await until('the screen has a size', async () =>
    screen.evaluate((it) => {
      const { width, height } = it as HTMLCanvasElement;
      return width > 100 && height > 100;
    }),
  );
  await own.button('Send Ctrl+Alt+Del').waitFor();
  await until('the screen has the focus', () => hasFocus(page, 'Screen of web'));
  await checkView(page, 'the screen of a machine');
  await page.keyboard.press('Control+]');
  await until('the focus is back', () => hasFocus(page, 'Screen'));
  check((await page.locator('.line canvas').count()) === 0, 'the screen is gone');
}

async function changesDisks(own: Console): Promise<void> {
  const { page } = own;
  let dialog = await own.begin('Take a snapshot');
  await dialog.fill({ Snapshot: 'before' });
  check((await dialog.commandLine()) === 'memlane vm snapshot web before', 'the command line');
  await dialog.confirm();
  await own.told(/^Taken: web@before\./);
  // A volume that has snapshots is not deleted.
  await ask('memlane', 'snapshot', 'delete', 'web@before');

  const disks = page.getByRole('group', { name: 'Disks' });
  dialog = await own.begin('Attach a disk');
  await dialog.fill({ Volume: 'extra' });
  check((await dialog.commandLine()) === 'memlane vm attach web extra', 'the command line');
  await dialog.confirm();
  await own.told('extra was attached to web.');
  await disks.getByRole('link', { name: 'extra' }).waitFor();
  dialog = await own.begin('Detach extra');
  check((await dialog.commandLine()) === 'memlane vm detach web extra', 'the command line');
  await dialog.submit().click();
  await dialog.element.waitFor({ state: 'hidden', timeout: GUEST_TIME_LIMIT_MS });
  await own.told('extra was detached from web.');
  await disks.getByRole('link', { name: 'extra' }).waitFor({ state: 'detached' });
}

async function looksWell(own: Console): Promise<void> {
  const { page } = own;
  for (const theme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: theme });
    for (const size of [WIDE, NARROW]) {
      const where = `${theme}, ${size.width} pixels`;
      await page.setViewportSize(size);
      await own.visit('machines', 'Virtual machines');
      await own.row('web').waitFor();
      await checkView(page, `machines, ${where}`);
      let dialog = await own.begin('Create a virtual machine');
      await dialog.element.getByText('Advanced', { exact: true }).click();
      await dialog.commandLine();
      await checkView(page, `Create a virtual machine, ${where}`);
      await dialog.cancel();
      await own.visit('machines/web', 'web');
      dialog = await own.begin('Force off');
      check((await dialog.element.locator('.losses li').count()) > 0, 'it says what is lost');
      await checkView(page, `Force off, ${where}`);
      await dialog.cancel();
      await own.button('Serial console').click();
      await page.getByText('Connected.', { exact: true }).waitFor();
      await page.keyboard.type('look');
      await page.keyboard.press('Enter');
      await reads(page, 'HEARD-look');
      await checkView(page, `the serial console, ${where}`);
      await page.getByLabel('For screen readers').check();
      await checkView(page, `the serial console read aloud, ${where}`);
      await own.button(/^Close ?: Serial console/).click();
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(WIDE);
}

async function onlyLooks(own: Console): Promise<void> {
  const { page } = own;
  await own.visit('machines', 'Virtual machines');
  await own.row('web').waitFor();
  const create = own.button('Create a virtual machine');
  check((await create.count()) === 0, 'who looks makes no machines');
  await own.visit('machines/web', 'web');
  await page.getByRole('group', { name: 'Disks' }).getByRole('link', { name: 'web' }).waitFor();
  const buttons = await page.locator('main button').allTextContents();
  check(buttons.length === 0, `who looks has nothing to press: ${buttons.join()}`);
}

async function ends(own: Console): Promise<void> {
  const { page } = own;
  await own.visit('machines/web', 'web');
  let dialog = await own.begin('Shut down');
  check((await dialog.commandLine()) === 'memlane vm stop web', 'the command line');
  await dialog.confirm();
  await own.told('web is shutting down.');
  await forcesOff(own);
  dialog = await own.begin('Start');
  check((await dialog.commandLine()) === 'memlane vm start web', 'the command line');
  await dialog.submit().click();
  await dialog.element.waitFor({ state: 'hidden', timeout: GUEST_TIME_LIMIT_MS });
  await own.told('web was started.');
  await own.button('Serial console').click();
  await reads(page, 'READY');
  await forcesOff(own);
  await page.getByText('The machine closed the connection.').waitFor();
  await own.button(/^Close ?: Serial console/).click();
  await page.getByText('Available while the machine runs.').waitFor();

  dialog = await own.begin('Delete');
  await dialog.check('Delete its volumes too');
  const losses = await dialog.element.locator('.losses li').allTextContents();
  check(losses.length === 2, `the machine and its volume are lost: ${losses.join()}`);
  const command = await dialog.commandLine();
  check(command === 'memlane vm delete web --with-volumes', command);
  await dialog.confirmByName('web');
  await own.told('web was deleted.');
  await page.getByRole('heading', { level: 1, name: 'Virtual machines' }).waitFor();
  await page.getByText('No virtual machines yet.').waitFor();
  const listed = await ask('memlane', '--json', 'volume', 'list');
  const names = (JSON.parse(listed) as { name: string }[]).map((it) => it.name);
  check(!names.includes('web') && names.includes('golden'), `its volume is gone: ${names.join()}`);
}

async function forcesOff(own: Console): Promise<void> {
  await own.button('Force off').waitFor();
  const dialog = await own.begin('Force off');
  check((await dialog.commandLine()) === 'memlane vm kill web', 'the command line');
  await dialog.confirm();
  await own.told('web was powered off.');
  await own.button('Start').waitFor();
}
