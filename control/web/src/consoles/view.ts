/** What a console is shown by: a terminal or a screen, and the key that leads out of both. */

/** What shows a line. */
export interface View {
  focus(): void;
  /** The line has ended: keys are the page's again, and what came last may be read. */
  ended(): void;
  /** Ends the line and leaves nothing behind. */
  close(): void;
  /** Tells what comes to those who do not see it. */
  readAloud?(isWanted: boolean): void;
  sendCtrlAltDel?(): void;
}

export interface Surroundings {
  /** The accessible name, and the element that says which keys lead out. */
  label: string;
  describedBy: string;
  /** Somebody asks by keyboard to be led out. */
  leave(): void;
  /** It cannot be shown. */
  failed(why: string): void;
  resized(rows: number, columns: number): void;
}

/** Shows a line that is being opened in a frame. */
export type Show = (frame: HTMLElement, socket: WebSocket, surroundings: Surroundings) => View;

type Key = Pick<
  KeyboardEvent,
  'type' | 'key' | 'code' | 'ctrlKey' | 'altKey' | 'metaKey' | 'shiftKey'
>;

/**
 * Whether a key leads out: Ctrl and ], as of `memlane vm console`. Where no key has that sign, as
 * on Cyrillic keyboards, it is the one at its place.
 */
export function isLeaving(event: Key): boolean {
  const isAlone = event.ctrlKey && !event.altKey && !event.metaKey && !event.shiftKey;
  if (event.type !== 'keydown' || !isAlone) return false;
  // With + the browser makes the page larger.
  return event.key === ']' || (event.code === 'BracketRight' && event.key !== '+');
}
