import { expect, test } from 'vitest';
import { addressOf, outcomeOf } from './line';
import { isLeaving } from './view';

const KEY = {
  type: 'keydown',
  key: ']',
  code: 'BracketRight',
  ctrlKey: true,
  altKey: false,
  metaKey: false,
  shiftKey: false,
};

test('a line has the address of the page, by WebSocket', () => {
  expect(addressOf('https://host:8443', 'web', 'serial', 'refused')).toBe(
    'wss://host:8443/console/v1/machines/web/serial?force=false',
  );
  expect(addressOf('https://host', 'a b', 'serial', 'forced')).toBe(
    'wss://host/console/v1/machines/a%20b/serial?force=true',
  );
  expect(addressOf('https://host', 'web', 'screen', 'refused')).toBe(
    'wss://host/console/v1/machines/web/screen',
  );
});

test('the end of a line is told in words', () => {
  expect(outcomeOf(1000, '').text).toBe('The machine closed the connection.');
  expect(outcomeOf(4000, 'it is off').text).toBe('No connection: it is off');
  expect(outcomeOf(4000, '').text).toBe('No connection.');
  expect(outcomeOf(1006, '').text).toBe('The connection to the console was lost.');
  expect(outcomeOf(4001, '').isSessionOver).toBe(true);
  expect(outcomeOf(1000, '').isSessionOver).toBe(false);
});

test('a terminal can be taken over from somebody who has it, and from nobody else', () => {
  const taken = 'the terminal of "web" is in use by another client';
  expect(outcomeOf(4000, `${taken}: it has a session`).isTaken).toBe(true);
  expect(outcomeOf(4000, 'the machine "web" is not running').isTaken).toBe(false);
  expect(outcomeOf(1000, taken).isTaken).toBe(false);
});

test('Ctrl and ] lead out, and keys that look like it do not', () => {
  expect(isLeaving(KEY)).toBe(true);
  expect(isLeaving({ ...KEY, code: 'Digit9' })).toBe(true);
  // The key at its place types something else.
  expect(isLeaving({ ...KEY, key: 'ъ' })).toBe(true);
  // The browser makes the page larger with it.
  expect(isLeaving({ ...KEY, key: '+' })).toBe(false);
  // This types a bracket on some keyboards.
  expect(isLeaving({ ...KEY, altKey: true })).toBe(false);
  expect(isLeaving({ ...KEY, ctrlKey: false })).toBe(false);
  expect(isLeaving({ ...KEY, type: 'keyup' })).toBe(false);
  expect(isLeaving({ ...KEY, key: 'Tab', code: 'Tab' })).toBe(false);
});
