/** What the pool's forecast and its memory mean, as data for the page. */
import type { Pool, PoolStatus } from './api/model';

/** One part of the pool's memory. All parts together are the whole pool, each byte once. */
export interface Part {
  name: 'contents' | 'maps' | 'index' | 'tables' | 'slack' | 'guaranteed' | 'free';
  bytes: number;
}

/** Where each byte of the pool's memory is. */
export function parts(pool: PoolStatus, guaranteedBytes: number): Part[] {
  const guaranteed = Math.min(guaranteedBytes, pool.free_bytes);
  return [
    { name: 'contents', bytes: pool.page_bytes },
    { name: 'maps', bytes: pool.map_bytes },
    { name: 'index', bytes: pool.index_bytes },
    { name: 'tables', bytes: pool.table_bytes },
    { name: 'slack', bytes: pool.slack_bytes },
    { name: 'guaranteed', bytes: guaranteed },
    { name: 'free', bytes: pool.free_bytes - guaranteed },
  ];
}

/** What became of all that was written. */
export interface Savings {
  writtenBytes: number;
  /** Repeats one value, and so takes no page. */
  patternBytes: number;
  /** Equal pages that are shared, and what compression took away. */
  sharedAndCompressedBytes: number;
  storedBytes: number;
  /** Of what is stored: not looked at for compression yet. */
  pendingBytes: number;
}

export function savings(pool: PoolStatus): Savings {
  const inPages = Math.max(0, pool.written_bytes - pool.fill_bytes);
  return {
    writtenBytes: pool.written_bytes,
    patternBytes: pool.fill_bytes,
    sharedAndCompressedBytes: Math.max(0, inPages - pool.page_bytes),
    storedBytes: pool.page_bytes,
    pendingBytes: pool.pending_bytes,
  };
}

export type Outlook =
  | { kind: 'unknown' }
  | { kind: 'steady' }
  | { kind: 'filling'; fullInSeconds: number; bytesPerSecond: number; volumes: string[] };

export function outlook(pool: Pool): Outlook {
  if (pool.forecast) {
    return {
      kind: 'filling',
      fullInSeconds: pool.forecast.full_in_seconds,
      bytesPerSecond: pool.forecast.bytes_per_second,
      volumes: pool.forecast.volumes.map((it) => it.volume),
    };
  }
  return { kind: pool.fill_state === 'steady' ? 'steady' : 'unknown' };
}
