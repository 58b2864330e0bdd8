/** Calls of the console and, through it, of the daemon. */
import { MUST_ENROL, type Problem } from './model';

export type Method = 'GET' | 'POST' | 'PATCH' | 'DELETE';

/** A request as data: what is sent, and shown to those who would rather send it themselves. */
export interface Request {
  method: Method;
  path: string;
  body?: unknown;
  /** The tag of what was looked at: where it has changed since, the call is refused. */
  ifMatch?: string;
  /** Of one that is answered when something has come to pass. */
  timeLimitMs?: number;
}

const CALL_TIME_LIMIT_MS = 30_000;

/** Why a call failed, in words for people. `field` names the part of the request to blame. */
export class Refusal extends Error {
  readonly status: number;
  readonly kind: string;
  readonly field: string | null;
  readonly retryAfterSeconds: number | null;

  constructor(problem: Problem, retryAfterSeconds: number | null = null) {
    super(problem.detail ?? problem.title);
    this.status = problem.status;
    this.kind = problem.kind ?? '';
    this.field = problem.field ?? null;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** What a call needs of the session, and whom it tells that the session has ended or is limited. */
export interface Caller {
  csrf(): string | null;
  unauthorized(): void;
  mustEnrol(): void;
}

let caller: Caller = {
  csrf: () => null,
  unauthorized: () => undefined,
  mustEnrol: () => undefined,
};

export function callAs(next: Caller): void {
  caller = next;
}

export async function call<T>(request: Request): Promise<T> {
  const limitMs = request.timeLimitMs ?? CALL_TIME_LIMIT_MS;
  const response = await open(request, AbortSignal.timeout(limitMs));
  if (response.status === 204) return undefined as T;
  const text = await response.text();
  return (text === '' ? undefined : JSON.parse(text)) as T;
}

/** The answer as it comes, of a call that was not refused; `signal` ends it. */
export async function open(request: Request, signal: AbortSignal): Promise<Response> {
  const headers = new Headers({ accept: 'application/json' });
  const csrf = caller.csrf();
  if (request.method !== 'GET' && csrf !== null) headers.set('X-Memlane-CSRF', csrf);
  if (request.body !== undefined) headers.set('content-type', 'application/json');
  if (request.ifMatch !== undefined) headers.set('if-match', `"${request.ifMatch}"`);
  let response: Response;
  try {
    response = await fetch(request.path, {
      method: request.method,
      headers,
      body: request.body === undefined ? null : JSON.stringify(request.body),
      credentials: 'same-origin',
      cache: 'no-store',
      signal,
    });
  } catch (error) {
    throw new Refusal({ title: String(error), status: 0, kind: 'unreachable' });
  }
  if (!response.ok) throw await refusalOf(response);
  return response;
}

export function get<T>(path: string): Promise<T> {
  return call<T>({ method: 'GET', path });
}

/** A path of the interface with its names escaped: `path`/v1/volumes/${name}``. */
export function path(parts: TemplateStringsArray, ...names: (string | number)[]): string {
  return parts.reduce((before, part, index) => {
    return before + encodeURIComponent(String(names[index - 1])) + part;
  });
}

async function refusalOf(response: Response): Promise<Refusal> {
  if (response.status === 401) caller.unauthorized();
  const after = Number(response.headers.get('retry-after') ?? NaN);
  const retryAfterSeconds = Number.isFinite(after) ? after : null;
  try {
    const problem = (await response.json()) as Problem;
    if (problem.kind === MUST_ENROL) caller.mustEnrol();
    return new Refusal({ ...problem, status: response.status }, retryAfterSeconds);
  } catch {
    const title = `${response.status} ${response.statusText}`;
    return new Refusal({ title, status: response.status }, retryAfterSeconds);
  }
}
