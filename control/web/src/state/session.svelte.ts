/** Who is logged in. The secret of the session is a cookie that scripts cannot read. */
import { Refusal, call, callAs, get } from '../api/calls';
import { ROLES, type Role, type Services, type Session } from '../api/model';

class SessionState {
  current = $state<Session | null>(null);
  /** Whether the console has answered at all. */
  isKnown = $state(false);
  /** Whether there was a session, and it ended by itself. */
  hasEnded = $state(false);
  failure = $state('');

  may(role: Role): boolean {
    const own = this.current?.role;
    return own !== undefined && ROLES.indexOf(own) >= ROLES.indexOf(role);
  }

  /** The projects that all is limited to; none: no limit. */
  get projects(): readonly string[] {
    return this.current?.projects ?? [];
  }

  /** Whether somebody sees what concerns the whole: the pool, images, tasks, events. */
  get seesAll(): boolean {
    return this.current !== null && this.projects.length === 0;
  }

  /** Whether the console was started with that service. */
  serves(service: keyof Services): boolean {
    return this.current?.services[service] === true;
  }

  async load(): Promise<void> {
    try {
      this.current = await get<Session>('/console/v1/session');
      this.failure = '';
      this.isKnown = true;
    } catch (error) {
      if (error instanceof Refusal && error.status === 401) {
        this.current = null;
        this.isKnown = true;
        this.failure = '';
      } else {
        this.failure = error instanceof Error ? error.message : String(error);
      }
    }
  }

  async logIn(name: string, password: string, code = ''): Promise<void> {
    const body = { name, password, ...(code === '' ? {} : { code }) };
    await call({ method: 'POST', path: '/console/v1/session', body });
    await this.load();
    this.hasEnded = false;
  }

  async setUp(code: string, name: string, password: string): Promise<void> {
    const body = { code, name, password };
    await call({ method: 'POST', path: '/console/v1/setup', body });
    await this.logIn(name, password);
  }

  async logOut(): Promise<void> {
    try {
      await call({ method: 'DELETE', path: '/console/v1/session' });
    } finally {
      this.current = null;
      this.hasEnded = false;
    }
  }
}

export const session = new SessionState();

callAs({
  csrf: () => session.current?.csrf ?? null,
  unauthorized: () => {
    if (session.current === null) return;
    session.current = null;
    session.hasEnded = true;
  },
  mustEnrol: () => {
    if (session.current !== null) session.current.must_enrol = true;
  },
});
