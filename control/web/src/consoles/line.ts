/**
 * A line to a console of a machine: a WebSocket whose messages are the bytes of its terminal, or of
 * the protocol of its screen. What shows them is loaded with the first console that is opened.
 */
import { path } from '../api/calls';
import { texts } from '../texts';
import type { Show } from './view';

export type ConsoleKind = 'serial' | 'screen';
/** Whether a terminal is taken from who has it. */
export type Takeover = 'refused' | 'forced';

export const VIEWS: Record<ConsoleKind, () => Promise<Show>> = {
  serial: async () => (await import('./serial')).showTerminal,
  screen: async () => (await import('./screen')).showScreen,
};

/** How the console ends a line. */
const CLOSED = { byMachine: 1000, failed: 4000, sessionEnded: 4001 } as const;
/** As memlane-machines begins to say why a terminal is not given. */
const TAKEN = /^the terminal of .* is in use by another client\b/;

export function addressOf(
  origin: string,
  machine: string,
  kind: ConsoleKind,
  takeover: Takeover,
): string {
  const host = origin.replace(/^http/, 'ws');
  const query = kind === 'serial' ? `?force=${takeover === 'forced'}` : '';
  return `${host}${path`/console/v1/machines/${machine}/`}${kind}${query}`;
}

export interface Outcome {
  text: string;
  /** Whether somebody else has the terminal, who can be made to leave it. */
  isTaken: boolean;
  isSessionOver: boolean;
}

export function outcomeOf(code: number, reason: string): Outcome {
  const words = texts.consoles;
  const outcome = (text: string): Outcome => ({ text, isTaken: false, isSessionOver: false });
  switch (code) {
    case CLOSED.byMachine:
      return outcome(words.ended);
    case CLOSED.failed: {
      const text = reason === '' ? words.failedUnknown : words.failed(reason);
      return { ...outcome(text), isTaken: TAKEN.test(reason) };
    }
    case CLOSED.sessionEnded:
      return { ...outcome(words.sessionEnded), isSessionOver: true };
    default:
      return outcome(words.lost);
  }
}
