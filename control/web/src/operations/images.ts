/** What can be done to images, tasks and the pool. */
import { path } from '../api/calls';
import type { Image, Pool, Task, Volume } from '../api/model';
import { bytes, exactBytes, time } from '../format';
import { texts } from '../texts';
import type { Operation } from './operation';

const words = texts.images;

export function saveImage(volumes: Volume[]): Operation {
  const inRam = volumes.filter((volume) => volume.durability === 'ram');
  return {
    title: words.save,
    button: words.save,
    explanation: words.saveExplanation,
    fields: [
      { kind: 'text', name: 'label', label: words.label, hint: words.labelHint },
      {
        kind: 'many',
        name: 'also',
        label: words.also,
        hint: words.alsoHint,
        value: [],
        choices: inRam.map((volume) => ({ value: volume.name, label: volume.name })),
      },
    ],
    request: (values) => ({
      method: 'POST',
      path: '/v1/images',
      body: {
        ...(values.text('label') === '' ? {} : { label: values.text('label') }),
        ...(values.many('also').length === 0 ? {} : { also: values.many('also') }),
      },
    }),
    command: (values) => [
      ...['image', 'save', ...values.many('also')],
      ...(values.text('label') === '' ? [] : ['--label', values.text('label')]),
    ],
    done: () => words.saving,
  };
}

export function restoreImage(image: Image): Operation {
  const number = String(image.number);
  return {
    title: words.restoreTitle(number),
    button: words.restore,
    explanation: words.restoreExplanation,
    fields: [
      {
        kind: 'many',
        name: 'volumes',
        label: words.volumesToRestore,
        hint: words.volumesToRestoreHint,
        value: [],
        choices: image.volumes.map((volume) => ({ value: volume.name, label: volume.name })),
      },
      { kind: 'text', name: 'name', label: words.restoreAs, hint: words.restoreAsHint },
    ],
    request: (values) => ({
      method: 'POST',
      path: path`/v1/images/${number}/restore`,
      body: {
        ...(values.many('volumes').length === 0 ? {} : { volumes: values.many('volumes') }),
        ...(values.text('name') === '' ? {} : { name: values.text('name') }),
      },
    }),
    command: (values) => [
      ...['image', 'restore', '--image', number, ...values.many('volumes')],
      ...(values.text('name') === '' ? [] : ['--as', values.text('name')]),
    ],
    done: () => words.restoring(number),
  };
}

export function verifyImage(image: Image): Operation {
  const number = String(image.number);
  return {
    title: words.verifyTitle(number),
    button: words.verify,
    explanation: words.verifyExplanation(bytes(image.stored_bytes)),
    fields: [],
    request: () => ({ method: 'POST', path: path`/v1/images/${number}/verify` }),
    command: () => ['image', 'verify', number],
    done: () => words.verifying(number),
  };
}

export function rehearse(): Operation {
  return {
    title: words.rehearseTitle,
    button: words.rehearse,
    explanation: words.rehearseExplanation,
    fields: [],
    request: () => ({ method: 'POST', path: '/v1/images/rehearse' }),
    command: () => ['image', 'rehearse'],
    done: () => words.rehearsing,
  };
}

export function deleteImage(image: Image): Operation {
  const number = String(image.number);
  const names = image.volumes.map((volume) => volume.name).join(', ');
  return {
    title: words.deleteTitle(number),
    button: words.delete,
    fields: [],
    losses: [words.deleteLoses(names, time(image.saved_unix_seconds))],
    nameToType: number,
    request: () => ({ method: 'DELETE', path: path`/v1/images/${number}` }),
    command: () => ['image', 'delete', number],
    done: () => words.deleted(number),
  };
}

export function cancelTask(task: Task): Operation {
  const id = String(task.id);
  const kind = texts.tasks.kinds[task.kind];
  return {
    title: texts.tasks.cancelTitle(kind, task.subject),
    button: texts.tasks.cancel,
    explanation: texts.tasks.cancelExplanation,
    fields: [],
    request: () => ({ method: 'DELETE', path: path`/v1/tasks/${id}` }),
    command: () => ['task', 'cancel', id],
    done: () => texts.tasks.cancelling,
  };
}

export function resizePool(pool: Pool): Operation {
  return {
    title: texts.pool.resizeTitle,
    button: texts.pool.resize,
    explanation: texts.pool.resizeExplanation(bytes(pool.capacity_bytes)),
    fields: [
      {
        kind: 'text',
        name: 'max_memory',
        label: texts.pool.maxMemory,
        hint: texts.pool.maxMemoryHint,
        value: exactBytes(pool.max_memory_bytes),
        required: true,
      },
    ],
    request: (values) => ({
      method: 'PATCH',
      path: '/v1/pool',
      body: { max_memory: values.text('max_memory') },
    }),
    command: (values) => ['pool', 'set', `max-memory=${values.text('max_memory')}`],
    done: (values) => texts.pool.resizing(values.text('max_memory')),
  };
}
