/**
 * What can be done, as data: what to ask for, the request that does it, and the command line that
 * does the same. The dialog that runs one of them knows nothing else.
 */
import type { Request } from '../api/calls';

export interface Choice {
  value: string;
  label: string;
}

interface FieldBase {
  name: string;
  label: string;
  hint?: string;
  /** Whether it is asked for, by what the others say; without this it always is. */
  when?(values: Values): boolean;
  /** What is wrong with what was filled in; empty when nothing is. Without this nothing can be. */
  problem?(values: Values): string;
  /** Whether it stands with those that few need. */
  isAdvanced?: boolean;
}

export interface TextField extends FieldBase {
  kind: 'text' | 'password' | 'number';
  value?: string;
  required?: boolean;
  /** What is likely meant; anything else can be typed too. */
  suggestions?: readonly string[];
  autocomplete?: 'current-password' | 'new-password' | 'username' | 'one-time-code' | 'off';
}

/** A text of several lines, such as a file. */
export interface LinesField extends FieldBase {
  kind: 'lines';
  value?: string;
}

export interface SelectField extends FieldBase {
  kind: 'select';
  value: string;
  choices: Choice[];
}

export interface CheckField extends FieldBase {
  kind: 'check';
  value: boolean;
}

/** Any number of choices. */
export interface ManyField extends FieldBase {
  kind: 'many';
  value: string[];
  choices: Choice[];
}

export type Field = TextField | LinesField | SelectField | CheckField | ManyField;

/** What was filled in. */
export class Values {
  private readonly values: ReadonlyMap<string, string | boolean | string[]>;

  constructor(values: ReadonlyMap<string, string | boolean | string[]>) {
    this.values = values;
  }

  /** As the fields are before anybody changed them. */
  static of(fields: readonly Field[]): Values {
    return new Values(new Map(fields.map((field) => [field.name, field.value ?? ''])));
  }

  with(name: string, value: string | boolean | string[]): Values {
    return new Values(new Map([...this.values, [name, value]]));
  }

  text(name: string): string {
    const value = this.values.get(name);
    return typeof value === 'string' ? value.trim() : '';
  }

  /** As it was typed: a blank at an end of a password is a part of it. */
  exactly(name: string): string {
    const value = this.values.get(name);
    return typeof value === 'string' ? value : '';
  }

  check(name: string): boolean {
    return this.values.get(name) === true;
  }

  many(name: string): string[] {
    const value = this.values.get(name);
    return Array.isArray(value) ? value : [];
  }

  /** The words of a text with commas between them. */
  list(name: string): string[] {
    return this.text(name)
      .split(/[\s,]+/)
      .filter((word) => word !== '');
  }
}

/** A part of an operation on several things, which fails or is done by itself. */
export interface Step {
  name: string;
  request: Request;
  command: string[];
}

/** What became of a step. */
export interface Outcome {
  name: string;
  /** Why it was not done; null: it was. */
  failure: string | null;
}

export interface Operation {
  title: string;
  button: string;
  explanation?: string;
  fields: Field[];
  /** What is lost for good, one sentence each. */
  losses?: string[];
  /** What is lost besides, by what was filled in. */
  furtherLosses?(values: Values): string[];
  /** The name that has to be typed before it is done. */
  nameToType?: string;
  request(values: Values): Request;
  /** The steps of one on several things, in place of its request: none stops the others. */
  each?(values: Values): Step[];
  /** The words after `memlane`; null where no command does it. */
  command(values: Values): string[] | null;
  /** What is said when it is done. */
  done(values: Values, answer: unknown): string;
  /** What the answer alone tells, and only once, as the secret of a token. */
  secret?(answer: unknown): string;
}

const NEEDS_NO_QUOTES = /^[A-Za-z0-9@%+=:,./_-]+$/;

/** A word as a shell reads it back. */
export function quoted(word: string): string {
  return NEEDS_NO_QUOTES.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

export function commandLine(words: readonly string[]): string {
  return ['memlane', ...words].map(quoted).join(' ');
}

/** The commands of steps, one after the other whatever becomes of them. */
export function commandLines(steps: readonly Step[]): string {
  return steps.map(({ command }) => commandLine(command)).join('; ');
}

/** The call by curl, with a token in the file that `MEMLANE_TOKEN_FILE` names. */
export function curl(request: Request, origin: string): string {
  const words = ['curl', '--fail-with-body', '--request', request.method];
  if (request.body !== undefined) {
    words.push('--header', 'Content-Type: application/json');
    words.push('--data', JSON.stringify(shown(request.body)));
  }
  const call = [...words, origin + request.path].map(quoted).join(' ');
  return `${call} --header "Authorization: Bearer $(cat "$MEMLANE_TOKEN_FILE")"`;
}

const SECRETS = new Set(['password', 'current', 'new', 'code']);

/** Passwords and codes are never shown, not even to who types them. */
function shown(body: unknown): unknown {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return body;
  const entries = Object.entries(body).map(([name, value]) => {
    return [name, SECRETS.has(name) ? '…' : (value as unknown)];
  });
  return Object.fromEntries(entries);
}
