/** Texts of the guide through the first volume. */

export const firstRun = {
  title: 'Your first volume',
  explanation:
    'Three steps to a block device in the memory of this host. Each is noticed by itself.',
  dismiss: 'Do not show this again',
  done: 'done',
  next: 'next',
  later: 'later',
  make: 'Make a volume',
  makeText: 'It takes memory as it is written, so its size may be generous.',
  makeButton: 'Make the first volume',
  madeText: (name: string, size: string): string => `${name} with ${size}.`,
  name: 'first',
  attach: 'Attach it to this host',
  attachText: 'It becomes a block device of the kernel. Programs on other hosts reach it by NBD.',
  attachButton: (name: string): string => `Attach ${name}`,
  attachedText: (device: string): string => `It is ${device}.`,
  move: 'See it move',
  moveText: 'Write something to it. This overwrites what is on it:',
  command: 'On this host, as root',
  movedText: (bytes: string, ram: string): string =>
    `${bytes} were written, and take ${ram} of memory. Its page shows requests as they come.`,
  open: (name: string): string => `Open the page of ${name}`,
  finish: 'Finish',
};
