/** A terminal at the serial port of a machine, in a file of its own that is loaded when needed. */
import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import { isLeaving, type Show } from './view';
import { Styles } from './styles';

/** Lines that can be scrolled back to. */
const SCROLLBACK_LINES = 5_000;
/** Of what came and is not drawn yet; what comes beyond it is left out. */
const PENDING_BYTES_MAX = 8 << 20;
/** What WCAG 2.2 asks for between a text and what is behind it (1.4.3). */
const CONTRAST_MIN = 4.5;
/** Dark on light pages too, as guests expect it. */
const COLOURS = { background: '#14181d', foreground: '#e8ebef', cursor: '#8ec1f0' };

export const showTerminal: Show = (frame, socket, surroundings) => {
  const styles = new Styles(document);
  const terminal = new Terminal({
    scrollback: SCROLLBACK_LINES,
    minimumContrastRatio: CONTRAST_MIN,
    fontFamily: 'ui-monospace, monospace',
    fontSize: 14,
    theme: COLOURS,
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  try {
    terminal.open(frame);
  } catch (error) {
    styles.remove();
    throw error;
  }
  name(terminal, surroundings.label, surroundings.describedBy);

  const measure = (): void => {
    fit.fit();
    surroundings.resized(terminal.rows, terminal.cols);
  };
  const resized = new ResizeObserver(measure);
  resized.observe(frame);
  measure();

  let isOver = false;
  terminal.attachCustomKeyEventHandler((event) => {
    // False: the key is not the terminal's.
    if (isOver) return false;
    if (!isLeaving(event)) return true;
    event.preventDefault();
    surroundings.leave();
    return false;
  });
  pass(terminal, socket);
  return {
    focus: () => terminal.focus(),
    ended: () => {
      isOver = true;
      terminal.options.disableStdin = true;
      terminal.options.cursorInactiveStyle = 'none';
    },
    close: () => {
      isOver = true;
      socket.close();
      resized.disconnect();
      terminal.dispose();
      styles.remove();
    },
    readAloud: (isWanted) => {
      terminal.options.screenReaderMode = isWanted;
    },
  };
};

/** Says what the terminal is, to those who do not see it. */
function name(terminal: Terminal, label: string, describedBy: string): void {
  terminal.textarea?.setAttribute('aria-label', label);
  terminal.textarea?.setAttribute('aria-describedby', describedBy);
  terminal.textarea?.removeAttribute('aria-multiline');
}

/** Bytes from the line to the terminal, and from the terminal to the line. */
function pass(terminal: Terminal, socket: WebSocket): void {
  const encoder = new TextEncoder();
  const send = (bytes: Uint8Array<ArrayBuffer>): void => {
    if (socket.readyState === WebSocket.OPEN) socket.send(bytes);
  };
  let pendingBytes = 0;
  socket.addEventListener('message', ({ data }: MessageEvent<ArrayBuffer>) => {
    const { byteLength } = data;
    if (pendingBytes + byteLength > PENDING_BYTES_MAX) return;
    pendingBytes += byteLength;
    terminal.write(new Uint8Array(data), () => (pendingBytes -= byteLength));
  });
  terminal.onData((text) => send(encoder.encode(text)));
  terminal.onBinary((text) => send(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
}
