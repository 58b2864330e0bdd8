/** Texts of every page: names, the daemon, the login and dialogs. */
import { duration } from '../format';

export const general = {
  name: 'Memlane',
  skip: 'Skip to the contents',
  menu: 'Pages',
  openMenu: 'Menu',
  pages: {
    overview: 'Overview',
    volumes: 'Volumes',
    machines: 'Virtual machines',
    images: 'Images',
    tasks: 'Tasks',
    log: 'Topics',
    administration: 'Administration',
  },
  notFound: 'Page not found',
  notFoundText: 'Choose a page from the menu.',
  title: (page: string): string => `${page} – Memlane`,
  theme: 'Theme',
  themes: { auto: 'System', light: 'Light', dark: 'Dark' },
  logOut: 'Log out',
  loggedInAs: (name: string, role: string): string => `${name}, ${role}`,
  loading: 'Loading…',
  close: 'Close',
  cancel: 'Cancel',
  copy: 'Copy',
  copied: 'Copied',
  none: 'None',
  actions: 'Actions',
  filter: 'Filter',
  filterHint: 'part of the name',
  nothingMatches: 'Nothing matches the filter.',
  sortBy: (column: string): string => `Sort by ${column}`,
  previous: 'Previous rows',
  next: 'Next rows',
  rowsShown: (first: number, last: number, all: number): string =>
    `Rows ${first} to ${last} of ${all.toLocaleString('en')}`,
  asTable: 'As a table',
  notices: 'Messages',
  dismiss: 'Dismiss',
  again: 'Try again',
};

export const daemon = {
  down: (at: string): string =>
    `The daemon does not answer. ${at === '' ? '' : `The page shows the last known state, from ${at}. `}The page updates again when the daemon is back.`,
  lost: (at: string): string =>
    `The console does not answer. ${at === '' ? '' : `The page shows the last known state, from ${at}. `}The page reconnects automatically.`,
  ago: (age: string): string => `(${age} ago)`,
  asOf: (age: string): string => `as of ${age} ago`,
  neverKnown:
    'No data yet: the daemon has not answered since this page was opened. The page retries automatically.',
  comesBack: 'The page retries automatically.',
  back: 'The daemon is back.',
  unreachable: 'The console did not answer.',
  retry: (seconds: number): string => `Try again in ${duration(seconds)}.`,
  cannotLoad: (why: string): string => `Cannot load this: ${why}`,
};

export const login = {
  title: 'Log in',
  name: 'Name',
  password: 'Password',
  button: 'Log in',
  byProvider: 'Log in by single sign-on',
  code: 'Code',
  codeHint: 'Only with two-factor login: the code of the app, or a recovery code.',
  wrong: 'Name, password or code is wrong.',
  ended: 'The session has ended. Please log in again.',
  setupTitle: 'Create the first administrator',
  setupExplanation:
    'This link works once. Choose a name and a password; there is no default password.',
  setupName: 'Name of the administrator',
  setupPassword: 'Password',
  setupPasswordHint: 'At least 10 characters. Several words are easy to remember.',
  setupRepeat: 'Repeat the password',
  setupDiffers: 'The two passwords differ.',
  setupButton: 'Create the administrator and log in',
};

export const dialog = {
  commandLine: 'Command line',
  rest: 'REST call',
  noCommand: 'There is no command for this; use the REST call.',
  lost: 'This cannot be undone. Lost:',
  typeName: (name: string): string => `Type ${name} to confirm`,
  typeNameHint: 'The button is enabled when the name matches.',
  thing: 'Name',
  outcome: 'Result',
  isDone: 'Done',
  notTried: 'Skipped: the dialog was closed.',
  someFailed: (failed: number, all: number): string => `${failed} of ${all} failed.`,
  step: (done: number, all: number): string => `Working… ${done} of ${all}`,
  firstSteps: (count: number, all: number): string =>
    `The first ${count} of ${all}; the others are alike.`,
  restOfFirst: 'REST call of the first one',
  secret: 'It is shown only once. Store it where only its user can read it.',
  required: 'required',
  advanced: 'Advanced',
  working: 'Working…',
};
