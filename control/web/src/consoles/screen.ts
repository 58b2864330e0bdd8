/** The screen of a machine, in a file of its own that is loaded when needed. */
import RFB from '@novnc/novnc';
import { texts } from '../texts';
import { isLeaving, type Show } from './view';

export const showScreen: Show = (frame, socket, surroundings) => {
  const screen = new RFB(frame, socket, { shared: true });
  screen.scaleViewport = true;
  name(frame, surroundings.label, surroundings.describedBy);
  let isOver = false;
  const end = (): void => {
    if (isOver) return;
    isOver = true;
    screen.disconnect();
  };
  // Before the screen takes the key.
  const pressed = (event: KeyboardEvent): void => {
    if (isOver || !isLeaving(event)) return;
    event.preventDefault();
    event.stopPropagation();
    surroundings.leave();
  };
  frame.addEventListener('keydown', pressed, { capture: true });
  screen.addEventListener('credentialsrequired', () => {
    surroundings.failed(texts.consoles.needsPassword);
  });
  screen.addEventListener('securityfailure', ({ detail }) => {
    surroundings.failed(texts.consoles.failed(detail.reason ?? String(detail.status)));
  });
  screen.addEventListener('disconnect', () => {
    isOver = true;
  });
  return {
    focus: () => screen.focus(),
    ended: end,
    close: () => {
      frame.removeEventListener('keydown', pressed, { capture: true });
      end();
    },
    sendCtrlAltDel: () => screen.sendCtrlAltDel(),
  };
};

/** Says what the picture is, and lets the keyboard come to it. */
function name(frame: HTMLElement, label: string, describedBy: string): void {
  const canvas = frame.querySelector('canvas');
  if (canvas === null) return;
  canvas.tabIndex = 0;
  canvas.setAttribute('role', 'application');
  canvas.setAttribute('aria-label', label);
  canvas.setAttribute('aria-describedby', describedBy);
}
