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
  notFound: 'There is no such page',
  notFoundText: 'Choose one at the side.',
  title: (page: string): string => `${page} – Memlane`,
  theme: 'Colours',
  themes: { auto: 'System', light: 'Light', dark: 'Dark' },
  logOut: 'Log out',
  loggedInAs: (name: string, role: string): string => `${name}, ${role}`,
  loading: 'Loading…',
  close: 'Close',
  cancel: 'Cancel',
  copy: 'Copy',
  copied: 'Copied',
  none: 'None',
  yes: 'yes',
  no: 'no',
  actions: 'Actions',
  filter: 'Filter',
  filterHint: 'a part of the name',
  nothingMatches: 'Nothing matches the filter.',
  sortBy: (column: string): string => `Sort by ${column}`,
  total: 'Together',
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
    `The daemon does not answer. ${at === '' ? '' : `The page shows the last known state, from ${at}. `}The page continues automatically when it is back.`,
  lost: (at: string): string =>
    `The console does not answer. ${at === '' ? '' : `The page shows the last known state, from ${at}. `}The page reconnects automatically.`,
  ago: (age: string): string => `(${age} ago)`,
  asOf: (age: string): string => `as of ${age} ago`,
  neverKnown:
    'Nothing is known yet: the daemon has not answered since this page was opened. It is asked again by itself.',
  comesBack: 'It is asked again by itself.',
  back: 'The daemon is back.',
  unreachable: 'The console did not answer.',
  retry: (seconds: number): string => `Try again in ${duration(seconds)}.`,
  cannotLoad: (why: string): string => `Cannot be shown: ${why}`,
};

export const login = {
  title: 'Log in',
  name: 'Name',
  password: 'Password',
  button: 'Log in',
  byProvider: 'Log in by single sign-on',
  code: 'Code',
  codeHint: 'If two-factor login is on: of the app, or a recovery code.',
  wrong: 'Name, password or code is wrong.',
  ended: 'The session has ended. Please log in again.',
  setupTitle: 'Make the first administrator',
  setupExplanation:
    'The link that you followed works once. Choose a name and a password; there is no default one.',
  setupName: 'Name of the administrator',
  setupPassword: 'Password',
  setupPasswordHint: 'Long is better than complicated: several words are easy to remember.',
  setupRepeat: 'Password again',
  setupDiffers: 'The two passwords differ.',
  setupButton: 'Make the administrator and log in',
};

export const dialog = {
  commandLine: 'On the command line',
  rest: 'By REST',
  noCommand: 'Only the console supports this; there is no command for it.',
  nothingChanged: 'Nothing is changed yet.',
  lost: 'Lost for good',
  typeName: (name: string): string => `Type ${name} to confirm`,
  typeNameHint: 'The button works once the name is right.',
  thing: 'Name',
  outcome: 'Result',
  isDone: 'Done',
  notTried: 'Skipped: the dialog was closed.',
  someFailed: (failed: number, all: number): string => `${failed} of ${all} were not done.`,
  step: (done: number, all: number): string => `Working… ${done} of ${all}`,
  firstSteps: (count: number, all: number): string =>
    `The first ${count} of ${all}; the others follow in the same way.`,
  restOfFirst: 'By REST, the first one',
  secret: 'Shown this once only. Keep it where only its user can read it.',
  required: 'needed',
  advanced: 'Advanced',
  working: 'Working…',
};
