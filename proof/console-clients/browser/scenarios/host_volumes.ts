/** Volumes as devices of this host and as disks of machines. */
import { check, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';
import { ask } from '../host.ts';

/** A host that lets nobody attach is not asked to. */
export async function hostVolumes(fixture: Fixture): Promise<void> {
  const mayAttach = (await ask('may-attach')) === 'yes';
  await withBrowser(fixture.origin, async ({ page }) => {
    const own = new Console(page, fixture);
    await own.logIn();
    await own.visit('volumes', 'Volumes');
    let dialog = await own.begin('Create a volume');
    await dialog.fill({ Name: 'on-host', Size: '64MiB' });
    await dialog.confirm();
    await own.visit('volumes/on-host', 'on-host');

    dialog = await own.begin('Export to virtual machines');
    await dialog.fill({ Queues: '2' });
    await dialog.confirm();
    await page.locator('dd', { hasText: 'vhost/on-host.sock' }).waitFor();
    check((await ask('memlane', 'export', 'list')).includes('on-host'), 'it is exported');
    dialog = await own.begin('End the export');
    await dialog.confirm();
    await own.button('Export to virtual machines').waitFor();

    if (mayAttach) {
      dialog = await own.begin('Attach');
      await dialog.confirm();
      await own.button('Detach').waitFor();
      const device = (await page.locator('dd', { hasText: '/dev/' }).first().textContent()) ?? '';
      check((await ask('memlane', 'volume', 'show', 'on-host')).includes(device), 'it is attached');
      dialog = await own.begin('Detach');
      await dialog.confirm();
      await own.button('Attach').waitFor();
    }
    dialog = await own.begin('Delete');
    await dialog.confirmByName('on-host');
  });
}
