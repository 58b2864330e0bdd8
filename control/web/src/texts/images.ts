/** Texts of images, tasks and the pool. */
import type { Task } from '../api/model';
import { duration } from '../format';

export const images = {
  list: 'Images',
  none: 'There is no image yet.',
  noneNext:
    'An image preserves volumes across a power loss. Save one, and rehearse how long a save takes.',
  noStore: 'No image store is configured; set store in [images].',
  number: 'Image',
  saved: 'Saved',
  label: 'Label',
  labelHint: 'An image with a label is kept until it is deleted.',
  size: 'In the store',
  volumes: 'Volumes',
  state: 'State',
  readable: 'readable',
  lost: (bytes: string): string => `${bytes} were lost before it was saved`,
  store: 'Store',
  every: (seconds: number): string => `every ${duration(seconds)}`,
  onlyAsked: 'only when asked',
  savedEvery: 'Saved',
  toFetch: 'Still to fetch',
  failure: 'The last save failed',
  save: 'Save an image',
  saveExplanation: 'Of all volumes of the classes image and journal, as they are at one instant.',
  also: 'Also these of the class ram',
  alsoHint: 'They are lost at a power loss unless an image contains them.',
  saving: 'The image is being saved; Tasks shows how far it is.',
  restore: 'Restore',
  restoreTitle: (number: string): string => `Restore from image ${number}`,
  restoreExplanation:
    'The volumes are available at once; contents are fetched in the background. Existing names are rejected.',
  volumesToRestore: 'Volumes',
  volumesToRestoreHint: 'None chosen means all.',
  restoreAs: 'Under another name',
  restoreAsHint: 'Only with exactly one volume.',
  restoring: (number: string): string => `Image ${number} is being restored.`,
  verify: 'Verify',
  verifyTitle: (number: string): string => `Verify image ${number}`,
  verifyExplanation: (bytes: string): string => `Reads all ${bytes} and compares every checksum.`,
  verifying: (number: string): string => `Image ${number} is being verified.`,
  rehearse: 'Rehearse',
  rehearseTitle: 'Measure how fast the store takes an image',
  rehearseExplanation: 'Shows how long a UPS must last for a save. Changes nothing.',
  rehearsing: 'The rehearsal runs; Tasks shows how far it is.',
  delete: 'Delete',
  deleteTitle: (number: string): string => `Delete image ${number}`,
  deleteLoses: (volumes: string, saved: string): string =>
    `The state of ${saved} of: ${volumes}. What other images need stays.`,
  deleted: (number: string): string => `Image ${number} is deleted.`,
};

export const tasks = {
  list: 'Tasks',
  none: 'No task runs, and none was run lately.',
  noneNext:
    'What takes long is here while it runs: images that are saved, fetched or verified, and changes of the pool.',
  kinds: {
    image_save: 'Save an image',
    image_fetch: 'Fetch an image',
    image_verify: 'Verify an image',
    image_rehearse: 'Rehearse a save',
    pool_resize: 'Resize the pool',
  } as Record<Task['kind'], string>,
  states: {
    running: 'running',
    done: 'done',
    failed: 'failed',
    cancelled: 'cancelled',
  } as Record<Task['state'], string>,
  id: 'Task',
  kind: 'What',
  subject: 'Of',
  state: 'State',
  progress: 'Progress',
  progressOf: (what: string): string => `Progress of: ${what}`,
  begun: 'Begun',
  took: 'Took',
  result: 'Result',
  moved: (bytes: string, speed: string): string => `${bytes} at ${speed}`,
  cancel: 'Cancel the task',
  cancelShort: 'Cancel',
  cancelTitle: (kind: string, subject: string): string => `Cancel: ${kind}, ${subject}`,
  cancelExplanation: 'The task ends without any change.',
  cancelling: 'Cancelling the task.',
};

export const pool = {
  title: 'Pool',
  resize: 'Change its memory',
  resizeTitle: 'Change the memory of the pool',
  resizeExplanation: (capacity: string): string =>
    `In steps of 2 MiB, up to ${capacity}. Growing takes effect at once; shrinking first moves data out of the freed part.`,
  maxMemory: 'Memory',
  maxMemoryHint: 'Binary units, as 8GiB.',
  resizing: (size: string): string => `The pool is being changed to ${size}.`,
};
