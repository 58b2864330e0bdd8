/** What is done to several volumes by one confirmation: a request for each of them. */
import { path } from '../api/calls';
import type { Volume } from '../api/model';
import { bytes } from '../format';
import { texts } from '../texts';
import type { Operation, Step, Values } from './operation';

const words = texts.volumes;

/** More names are counted, and not told before. */
const NAMES_MAX = 10;

export function deleteVolumes(volumes: readonly Volume[]): Operation {
  const written = volumes.reduce((sum, volume) => sum + volume.written_bytes, 0);
  return {
    ...steps(
      volumes.map(({ name }) => ({
        name,
        request: { method: 'DELETE', path: path`/v1/volumes/${name}` },
        command: ['volume', 'delete', name],
      })),
    ),
    title: words.deleteManyTitle(volumes.length),
    button: words.delete,
    explanation: words.deleteManyExplanation,
    fields: [],
    losses: [words.losesManyContents(volumes.length, bytes(written)), named(volumes)],
    nameToType: words.many(volumes.length),
    done: () => words.deletedMany(volumes.length),
  };
}

export function snapshotVolumes(volumes: readonly Volume[]): Operation {
  const all = (values: Values): Step[] =>
    volumes.map(({ name }) => ({
      name: `${name}@${values.text('snapshot')}`,
      request: {
        method: 'POST',
        path: '/v1/snapshots',
        body: { volumes: [name], snapshot: values.text('snapshot') },
      },
      command: ['snapshot', 'create', `${name}@${values.text('snapshot')}`],
    }));
  return {
    ...steps(all),
    title: words.snapshotManyTitle(volumes.length),
    button: texts.snapshots.create,
    explanation: `${named(volumes)}. ${words.snapshotManyExplanation}`,
    fields: [
      {
        kind: 'text',
        name: 'snapshot',
        label: texts.snapshots.name,
        hint: texts.snapshots.nameHint,
        required: true,
      },
    ],
    done: () => words.snapshotMany(volumes.length),
  };
}

type OfSteps = Pick<Operation, 'each' | 'request' | 'command'>;

/** The same by steps, the first of which stands for all where one is shown. */
function steps(given: Step[] | ((values: Values) => Step[])): OfSteps {
  const each = (values: Values): Step[] => (Array.isArray(given) ? given : given(values));
  const first = (values: Values): Step => {
    const [step] = each(values);
    if (step === undefined) throw new Error('nothing was chosen');
    return step;
  };
  return {
    each,
    request: (values) => first(values).request,
    command: (values) => first(values).command,
  };
}

function named(volumes: readonly Volume[]): string {
  const names = volumes.slice(0, NAMES_MAX).map(({ name }) => name);
  const more = volumes.length - names.length;
  return names.join(', ') + (more > 0 ? words.andMore(more) : '');
}
