/** Texts of images, tasks and the pool. */
import type { Task } from '../api/model';
import { duration } from '../format';

export const images = {
  list: 'Images',
  none: 'No images yet.',
  noneNext:
    'Volumes of class image are restored from images after a power loss. Save one, or rehearse a save to see how long it takes.',
  noStore: 'No image store is configured.',
  noStoreNext: 'Set store in [images] of the daemon’s configuration.',
  ofStandby: 'This daemon is a standby.',
  ofStandbyNext: (store: string): string =>
    `It follows ${store}; the writer saves and lists its images. If the writer has stopped for good: memlane standby promote.`,
  number: 'Image',
  saved: 'Saved',
  label: 'Label',
  labelHint: 'Images with a label are kept until they are deleted.',
  size: 'Size in the store',
  volumes: 'Volumes',
  state: 'State',
  readable: 'readable',
  lost: (bytes: string): string => `${bytes} were lost before it was saved`,
  store: 'Store',
  every: (seconds: number): string => `every ${duration(seconds)}`,
  onlyAsked: 'manually',
  savedEvery: 'Saved',
  toFetch: 'Still to fetch',
  failure: 'The last save failed',
  save: 'Save an image',
  saveExplanation: 'A consistent copy of all volumes of the classes image and journal.',
  also: 'Also these volumes of class ram',
  alsoHint: 'They are lost at a power loss unless an image contains them.',
  saving: 'The image is being saved; see Tasks.',
  restore: 'Restore',
  restoreTitle: (number: string): string => `Restore from image ${number}`,
  restoreExplanation:
    'The volumes are available at once; contents are fetched in the background. Existing names are rejected.',
  volumesToRestore: 'Volumes',
  volumesToRestoreHint: 'No selection means all.',
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
  rehearsing: 'The rehearsal is running; see Tasks.',
  delete: 'Delete',
  deleteTitle: (number: string): string => `Delete image ${number}`,
  deleteLoses: (volumes: string, saved: string): string =>
    `The copies of ${volumes} as of ${saved}. Data that other images need is kept.`,
  deleted: (number: string): string => `Image ${number} was deleted.`,
};

export const tasks = {
  list: 'Tasks',
  none: 'No tasks running, and none recently.',
  noneNext:
    'Long operations appear here: saving, restoring and verifying images, and resizing the pool.',
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
  kind: 'Operation',
  subject: 'Object',
  state: 'State',
  progress: 'Progress',
  progressOf: (what: string): string => `Progress of: ${what}`,
  begun: 'Started',
  took: 'Duration',
  result: 'Result',
  moved: (bytes: string, speed: string): string => `${bytes} at ${speed}`,
  cancel: 'Cancel the task',
  cancelShort: 'Cancel',
  cancelTitle: (kind: string, subject: string): string => `Cancel: ${kind}, ${subject}`,
  cancelExplanation: 'The task ends without any change.',
  cancelling: 'Cancelling the task.',
};

export const pool = {
  resize: 'Resize the pool',
  resizeTitle: 'Resize the pool',
  resizeExplanation: (capacity: string): string =>
    `In steps of 2 MiB, up to ${capacity}. Growing takes effect at once; shrinking first moves data out of the freed part.`,
  maxMemory: 'Memory',
  maxMemoryHint: 'For example 8GiB.',
  resizing: (size: string): string => `The pool is being resized to ${size}.`,
};
