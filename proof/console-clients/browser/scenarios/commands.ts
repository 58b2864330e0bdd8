/** The command lines that dialogs show do what the dialogs do: they are run instead. */
import { check, withBrowser } from '../browser.ts';
import { Console, type Dialog, type Fixture } from '../console.ts';
import { ask } from '../host.ts';

export async function commands(fixture: Fixture): Promise<void> {
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await own.logIn();
    await own.visit('volumes', 'Volumes');
    let dialog = await own.begin('Create a volume');
    await dialog.fill({
      Name: 'by-command',
      Size: '64MiB',
      Durability: 'image',
      Reduction: 'dedup',
      Capacity: 'guaranteed',
      'Logical sector': '4096',
    });
    await runInstead(dialog);
    await own.visit('volumes/by-command', 'by-command');
    await page.locator('dd', { hasText: '4096 bytes' }).waitFor();
    await page.locator('dd', { hasText: 'guaranteed:' }).waitFor();

    dialog = await own.begin('Resize');
    await dialog.fill({ 'New size': '32MiB' });
    await dialog.check('Discard data past the new end');
    await runInstead(dialog);
    await page.locator('dd', { hasText: '32.0 MiB' }).first().waitFor();

    dialog = await own.begin('Take a snapshot');
    await dialog.fill({ Snapshot: 'one' });
    await runInstead(dialog);
    await own.row('one').waitFor();
    for (const [button, fields] of [
      ['Clone by-command@one', { 'Name of the new volume': 'by-command-2' }],
      ['Restore by-command@one', {}],
      ['Rename by-command@one', { 'New name': 'two' }],
    ] as const) {
      dialog = await own.begin(button);
      await dialog.fill(fields);
      await runInstead(dialog);
    }
    await own.row('two').waitFor();
    dialog = await own.begin('Delete by-command@two');
    await runInstead(dialog);
    await own.row('two').waitFor({ state: 'detached' });
    dialog = await own.begin('Export to virtual machines');
    await dialog.fill({ Queues: '1', Mode: '600' });
    await runInstead(dialog);
    await own.button('End the export').waitFor();
    dialog = await own.begin('End the export');
    await runInstead(dialog);
    await own.button('Export to virtual machines').waitFor();
    dialog = await own.begin('Delete');
    await runInstead(dialog);
    await page.getByText('Volume by-command not found').waitFor();
    await ask('memlane', 'volume', 'delete', 'by-command-2');
  });
}

async function runInstead(dialog: Dialog): Promise<void> {
  const line = await dialog.commandLine();
  await dialog.cancel();
  const words = line.split(' ');
  check(words[0] === 'memlane', line);
  await ask(...words);
  // What others change is shown by itself within seconds, which need not be waited for here.
  await dialog.element.page().reload();
}
