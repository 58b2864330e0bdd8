/** Chromium with one page of the console, and what every page must keep on the way. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium, type BrowserContext, type Page } from 'playwright-core';

const CHROMIUM = process.env['MEMLANE_CHROMIUM'] ?? '/usr/bin/chromium';

/** Nothing but pages: no connection of the browser's own, and no place that needs rights. */
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

const START_TIME_LIMIT_MS = 60_000;
const STEP_TIME_LIMIT_MS = 30_000;

export interface Window {
  page: Page;
  context: BrowserContext;
  /** Complaints of the browser that a scenario expects and takes away. */
  complaints: string[];
}

/** Runs `visit` in a browser with an empty profile; fails on whatever the browser complains of. */
export async function withBrowser(
  origin: string,
  visit: (window: Window) => Promise<void>,
): Promise<void> {
  const profile = mkdtempSync(join(tmpdir(), 'memlane-browser-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: CHROMIUM,
    args: FLAGS,
    ignoreHTTPSErrors: true,
    timeout: START_TIME_LIMIT_MS,
    viewport: { width: 1280, height: 900 },
  });
  try {
    context.setDefaultTimeout(STEP_TIME_LIMIT_MS);
    const page = context.pages()[0] ?? (await context.newPage());
    const complaints: string[] = [];
    watch(page, origin, complaints);
    await visit({ page, context, complaints });
    if (complaints.length > 0) throw new Error(complaints.join('\n'));
  } finally {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  }
}

/** Notes errors of scripts, what the policy forbids, and requests to anywhere else. */
function watch(page: Page, origin: string, complaints: string[]): void {
  page.on('pageerror', (error) => complaints.push(`a script failed: ${error.message}`));
  page.on('console', (message) => {
    const isAnswer = message.text().startsWith('Failed to load resource');
    if (message.type() === 'error' && !isAnswer) complaints.push(message.text());
  });
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (url.origin !== origin && url.protocol !== 'data:') {
      complaints.push(`a request to ${request.url()}`);
    }
  });
}

/** Waits until `holds` does, which is asked again and again. */
export async function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  const end = Date.now() + STEP_TIME_LIMIT_MS;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`it did not come that ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

export function check(holds: boolean, what: string): void {
  if (!holds) throw new Error(`not so: ${what}`);
}
