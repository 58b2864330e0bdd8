/** Texts of the guide through the first volume. */

export const firstRun = {
  title: 'Your first volume',
  explanation: 'Three steps to a block device in RAM. The page marks each step that is done.',
  dismiss: 'Do not show this again',
  done: 'done',
  next: 'next',
  later: 'later',
  make: 'Create a volume',
  makeText: 'It takes memory only as it is written, so the size may be generous.',
  makeButton: 'Create the first volume',
  madeText: (name: string, size: string): string => `${name}, ${size}.`,
  name: 'first',
  attach: 'Attach it to this host',
  attachText: 'It becomes a block device of the kernel. Other hosts can use NBD.',
  attachButton: (name: string): string => `Attach ${name}`,
  attachedText: (device: string): string => `It is ${device}.`,
  move: 'Watch its I/O',
  moveText: 'Write to it. This overwrites its data:',
  command: 'On this host, as root',
  movedText: (bytes: string, ram: string): string =>
    `${bytes} were written and take ${ram} of memory. The volume’s page shows its requests.`,
  open: (name: string): string => `Open the page of ${name}`,
  finish: 'Finish',
};
