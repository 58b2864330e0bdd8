import { expect, test } from 'vitest';
import type { Group, Machine, Pool } from './api/model';
import { behind, counted, moodOfMachine, moodOfPool } from './health';

function pool(told: Partial<Pool>): Pool {
  return { passed_percent: null, forecast: null, ...told } as Pool;
}

test.each([
  [pool({}), 'good'],
  [pool({ passed_percent: 80 }), 'warning'],
  [pool({ forecast: { full_in_seconds: 3_600 } as Pool['forecast'] }), 'danger'],
  [pool({ forecast: { full_in_seconds: 864_000 } as Pool['forecast'] }), 'good'],
])('a pool that fills within a day is a danger, a full one a warning', (told, mood) => {
  expect(moodOfPool(told)).toBe(mood);
});

test('groups that are behind come by their lag, and others do not', () => {
  const group = (name: string, ...lags: number[]): Group => ({
    group: name,
    state: 'Stable',
    member_count: 1,
    topics: lags.map((lag, index) => ({ topic: `t${index}`, partition_count: 1, lag })),
  });
  expect(behind([group('a', 0, 2), group('b', 7), group('c')])).toEqual([
    { group: 'b', topic: 't0', lag: 7 },
    { group: 'a', topic: 't1', lag: 2 },
  ]);
});

test('machines are counted, and those that crashed are named', () => {
  const machine = (name: string, state: Machine['state']): Machine => ({ name, state }) as Machine;
  const machines = [machine('a', 'running'), machine('b', 'crashed'), machine('c', 'off')];
  expect(counted(machines)).toEqual({ all: 3, running: 1, crashed: ['b'] });
  expect(machines.map(moodOfMachine)).toEqual(['good', 'danger', 'neutral']);
});
