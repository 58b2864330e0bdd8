import { expect, test } from 'vitest';
import { BROKER_OWNER, type Volume } from '../api/model';
import { FirstRun } from './first_run.svelte';

function volume(name: string, owner: string | null): Volume {
  return { name, owner } as Volume;
}

test.each([
  [null, false],
  [[], true],
  [[volume('orders', BROKER_OWNER)], true],
  [[volume('orders', BROKER_OWNER), volume('db', null)], false],
  [[volume('pvc-1', 'csi.memlane')], false],
])('the guide is shown while there is no volume but those of a broker', (volumes, isShown) => {
  expect(new FirstRun('ann').isShown(volumes)).toBe(isShown);
});

test('the guide goes on with the volume that it made, until its end', () => {
  const guide = new FirstRun('ann');
  guide.made('first');
  expect(guide.isShown([volume('first', null), volume('other', null)])).toBe(true);
  guide.end();
  expect(guide.isShown([])).toBe(false);
});
