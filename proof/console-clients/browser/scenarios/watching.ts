/**
 * Many browsers that watch: each holds the line of events and asks for charts as the page does, on
 * connections that stay. What the console uses for it is measured.
 */
import type { IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { check, until } from '../browser.ts';
import type { Fixture } from '../console.ts';
import { ask, note } from '../host.ts';

const WATCHERS = Number(process.env['MEMLANE_WATCHERS'] ?? 50);
/** Fewer than the console lets one user have. */
const WATCHERS_OF_USER = 25;
const MEASURED_MS = Number(process.env['MEMLANE_WATCHED_SECONDS'] ?? 3) * 1_000;

/** As `Overview.svelte` asks, where the last five minutes are shown. */
const POLLED: [path: string, intervalMs: number][] = [
  ['/console/v1/charts?seconds=300', 2_000],
  ['/v1/status', 3_000],
  ['/console/v1/busiest', 3_000],
  ['/console/v1/topics', 5_000],
];

const VOLUMES = Array.from({ length: 20 }, (_, index) => `watched-${index}`);

interface Session {
  cookie: string;
  csrf: string;
}

interface Watcher {
  events: number;
  answers: number;
  bytes: number;
  failure: string;
}

export async function watching(fixture: Fixture): Promise<void> {
  const cookies = await logIn(fixture);
  for (const name of VOLUMES) await ask('memlane', 'volume', 'create', name, '--size', '64MiB');
  await ask('begin-io', VOLUMES[0] ?? '', '5');
  const alone = await used(MEASURED_MS);
  const idleMemory = await ask('console-memory');
  const agent = new Agent({ rejectUnauthorized: false, keepAlive: true });
  const watchers = Array.from({ length: WATCHERS }, (_, index) => {
    return watch(fixture, cookies[index % cookies.length] ?? '', agent);
  });
  // All are connected, and the caches of the console are warm.
  await allAreTold(watchers);
  const before = watchers.map((it) => ({ ...it }));
  const together = await used(MEASURED_MS);
  const memory = await ask('console-memory');
  const after = watchers.map((it) => ({ ...it }));
  const sum = (of: (it: Watcher) => number): number => {
    return after.reduce((total, it, index) => total + of(it) - of(before[index] ?? it), 0);
  };
  const perSecond = (count: number): string => (count / (MEASURED_MS / 1_000)).toFixed(0);
  note(
    `${WATCHERS} watchers took ${together} of a core, none ${alone}; ` +
      `${perSecond(sum((it) => it.events))} events, ${perSecond(sum((it) => it.answers))} answers ` +
      `and ${perSecond(sum((it) => it.bytes) / 1024)} KiB in a second; ` +
      `memory ${idleMemory} before, ${memory} with them`,
  );
  await allAreTold(watchers);
  await ask('end-io');
}

/** Waits until each is told of a change and has an answer once more. */
async function allAreTold(watchers: Watcher[]): Promise<void> {
  const before = watchers.map(({ events, answers }) => ({ events, answers }));
  await until('all watchers are told', async () => {
    const failures = watchers.map((it) => it.failure).filter(Boolean);
    check(failures.length === 0, `${failures.length} watchers failed: ${failures[0]}`);
    return watchers.every((now, index) => {
      const { events, answers } = before[index] ?? now;
      return now.events > events && now.answers > answers;
    });
  });
}

async function used(milliseconds: number): Promise<string> {
  const [cpuBefore, begun] = [Number(await ask('console-cpu')), performance.now()];
  await sleep(milliseconds);
  const [cpu, ended] = [Number(await ask('console-cpu')), performance.now()];
  return `${(((cpu - cpuBefore) / ((ended - begun) / 1_000)) * 100).toFixed(1)} %`;
}

function watch(fixture: Fixture, cookie: string, agent: Agent): Watcher {
  const watcher: Watcher = { events: 0, answers: 0, bytes: 0, failure: '' };
  const failed = (error: Error): void => {
    watcher.failure ||= error.message;
  };
  const ask = (path: string, take: (answer: IncomingMessage) => void): void => {
    const asked = request(`${fixture.origin}${path}`, { agent, headers: { cookie } }, (answer) => {
      answer.on('data', (bytes: Buffer) => (watcher.bytes += bytes.length));
      answer.on('error', failed);
      if (answer.statusCode !== 200) failed(new Error(`${path}: ${answer.statusCode}`));
      take(answer);
    });
    asked.on('error', failed).end();
  };
  ask('/console/v1/events', (answer) => {
    answer.on('data', (bytes: Buffer) => {
      watcher.events += bytes.toString().split('event: daemon\n').length - 1;
    });
    answer.on('end', () => failed(new Error('the line of events ended')));
  });
  for (const [path, intervalMs] of POLLED) {
    const next = (): void =>
      ask(path, (answer) => {
        answer.on('end', () => {
          watcher.answers += 1;
          setTimeout(next, intervalMs);
        });
      });
    // Browsers do not begin at the same instant.
    setTimeout(next, Math.random() * intervalMs);
  }
  return watcher;
}

/** The cookies of so many users that each has a share of what all may watch. */
async function logIn(fixture: Fixture): Promise<string[]> {
  const { administrator, code, password } = fixture;
  const first = await post(fixture, '/console/v1/setup', { code, name: administrator, password });
  const cookies = [first.cookie];
  while (cookies.length * WATCHERS_OF_USER < WATCHERS) {
    const name = `watcher-${cookies.length}`;
    await post(fixture, '/console/v1/users', { name, password, role: 'administrator' }, first);
    cookies.push((await post(fixture, '/console/v1/session', { name, password })).cookie);
  }
  return cookies;
}

/** Sends a body; the session that begins with it. */
async function post(fixture: Fixture, path: string, sent: object, by?: Session): Promise<Session> {
  const body = JSON.stringify(sent);
  const headers = {
    'content-type': 'application/json',
    'content-length': body.length,
    ...(by && { cookie: by.cookie, 'x-memlane-csrf': by.csrf }),
  };
  return new Promise((done, fail) => {
    const options = { method: 'POST', headers, rejectUnauthorized: false };
    const asked = request(`${fixture.origin}${path}`, options, (answer) => {
      let text = '';
      answer.on('data', (bytes: Buffer) => (text += bytes.toString()));
      answer.on('end', () => {
        if ((answer.statusCode ?? 500) >= 300) {
          fail(new Error(`${path}: ${answer.statusCode}: ${text}`));
          return;
        }
        const cookie = answer.headers['set-cookie']?.[0]?.split(';')[0] ?? '';
        const { csrf = '' } = JSON.parse(text) as { csrf?: string };
        done({ cookie, csrf });
      });
    });
    asked.on('error', fail).end(body);
  });
}

function sleep(milliseconds: number): Promise<void> {
  return new Promise((done) => setTimeout(done, milliseconds));
}
