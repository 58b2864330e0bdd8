/**
 * What the console's policy forbids does not happen, though the page asks for it: the browser says
 * so, and that is all that it complains of.
 */
import { check, until, withBrowser } from '../browser.ts';
import { Console, type Fixture } from '../console.ts';

export async function policy(fixture: Fixture): Promise<void> {
  await withBrowser(fixture.origin, async ({ page, complaints }) => {
    const own = new Console(page, fixture);
    const answer = await page.goto(`${fixture.origin}/`);
    const headers = answer?.headers() ?? {};
    const rules = headers['content-security-policy'] ?? '';
    for (const rule of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"]) {
      check(rules.includes(rule), `the policy has ${rule}: ${rules}`);
    }
    check(!rules.includes('unsafe'), `the policy allows nothing unsafe: ${rules}`);
    await own.logIn();

    const tried = await page.evaluate(async () => {
      const blocked: string[] = [];
      document.addEventListener('securitypolicyviolation', (event) => {
        blocked.push(event.effectiveDirective);
      });
      const script = document.createElement('script');
      script.textContent = 'window.wasRun = true';
      document.body.append(script);
      const button = document.createElement('button');
      button.setAttribute('onclick', 'window.wasRun = true');
      document.body.append(button);
      button.click();
      const frame = document.createElement('iframe');
      frame.src = '/';
      document.body.append(frame);
      const fetched = await fetch('https://localhost:1/').then(
        () => true,
        () => false,
      );
      // The browser tells of each some time after.
      const end = Date.now() + 10_000;
      while (new Set(blocked).size < 4 && Date.now() < end) {
        await new Promise((done) => setTimeout(done, 10));
      }
      for (const element of [script, button, frame]) element.remove();
      return { blocked, fetched, wasRun: 'wasRun' in window };
    });
    check(!tried.wasRun && !tried.fetched, 'a script in the page runs, or another host is asked');
    for (const rule of ['script-src-elem', 'script-src-attr', 'connect-src', 'frame-src']) {
      check(tried.blocked.includes(rule), `${rule} forbids it: ${tried.blocked.join()}`);
    }
    await until('the browser has said so', async () => complaints.length >= 4);
    const others = complaints.filter((it) => !it.includes('Content Security Policy'));
    check(others.length === 0, others.join('\n'));
    complaints.length = 0;

    const cookies = await page.context().cookies();
    const cookie = cookies.find(({ name }) => name === '__Host-memlane-session');
    check(cookie?.httpOnly === true && cookie.secure, 'scripts cannot read the session');
    check(cookie?.sameSite === 'Strict', 'the session stays on this fixture');
    const stored = await page.evaluate(async () => {
      const databases = (await indexedDB.databases()).map(({ name }) => name);
      const markup = document.documentElement.outerHTML;
      const kept = [{ ...localStorage }, { ...sessionStorage }, document.cookie, databases];
      return JSON.stringify([...kept, history.state, markup]);
    });
    const session = await page.evaluate(async () => (await fetch('/console/v1/session')).json());
    const secrets = [cookie?.value, fixture.password, (session as { csrf?: string }).csrf];
    for (const secret of secrets) {
      check(secret !== undefined && secret !== '', 'there is a secret');
      check(!stored.includes(secret ?? ''), `the browser keeps no secret: ${stored}`);
    }
  });
}
