import { expect, test } from 'vitest';
import type { Pool, PoolStatus } from './api/model';
import { outlook, parts, savings } from './forecast';
import { texts } from './texts';

const MIB = 2 ** 20;

const POOL: PoolStatus = {
  path: '/run/memlane/pool/region',
  size_bytes: 1024 * MIB,
  used_bytes: 300 * MIB,
  free_bytes: 724 * MIB,
  page_bytes: 200 * MIB,
  map_bytes: 40 * MIB,
  index_bytes: 30 * MIB,
  table_bytes: 20 * MIB,
  slack_bytes: 10 * MIB,
  written_bytes: 900 * MIB,
  fill_bytes: 100 * MIB,
  pending_bytes: 5 * MIB,
  page_count: 51_200,
  overwrite_need_bytes: 0,
  overwrite_room_bytes: 0,
  provisioned_bytes: 2048 * MIB,
  ratio: 3,
};

const LIMITS: Pool = {
  max_memory_bytes: 1024 * MIB,
  capacity_bytes: 1024 * MIB,
  used_bytes: 300 * MIB,
  guaranteed_bytes: 0,
  reserve_bytes: 0,
  daemon_bytes: 0,
  thresholds_percent: [80, 90, 95],
  passed_percent: null,
  fill_state: 'unknown',
  forecast: null,
};

test('the parts are the whole pool, each byte once', () => {
  for (const guaranteed of [0, 100 * MIB, 5000 * MIB]) {
    const sum = parts(POOL, guaranteed).reduce((total, part) => total + part.bytes, 0);
    expect(sum).toBe(POOL.size_bytes);
  }
});

test('what was written is in patterns, in pages, or saved', () => {
  const found = savings(POOL);
  const sum = found.patternBytes + found.sharedAndCompressedBytes + found.storedBytes;
  expect(sum).toBe(found.writtenBytes);
});

test('pages that do not shrink save nothing, and never less', () => {
  const found = savings({ ...POOL, page_bytes: 900 * MIB });
  expect(found.sharedAndCompressedBytes).toBe(0);
});

test('a pool that fills says when and through what', () => {
  const forecast = {
    full_in_seconds: 5400,
    bytes_per_second: MIB,
    window_seconds: 600,
    volumes: [
      { volume: 'db', bytes_per_second: MIB },
      { volume: 'wal', bytes_per_second: 1 },
    ],
  };
  const found = outlook({ ...LIMITS, fill_state: 'filling', forecast });
  expect(texts.overview.outlook(found)).toBe(
    'Full in 1 h 30 min at the current 1.00 MiB/s, mostly from db, wal.',
  );
});

test('a pool that does not fill says so, and one that is not known yet too', () => {
  const steady = outlook({ ...LIMITS, fill_state: 'steady' });
  expect(texts.overview.outlook(steady)).toBe('Usage is not growing.');
  expect(texts.overview.outlook(outlook(LIMITS))).toContain('Too early');
});
