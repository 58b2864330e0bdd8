/** What is done to several things by one confirmation: a request for each of them. */
import { path } from '../api/calls';
import type { Group, Topic, Volume } from '../api/model';
import { bytes } from '../format';
import { texts } from '../texts';
import type { Operation, Step, Values } from './operation';
import { deletionOf, readersOf } from './topics';

const words = texts.volumes;
const topicWords = texts.log;

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

export function deleteTopics(topics: readonly Topic[], groups: readonly Group[]): Operation {
  const size = topics.reduce((sum, topic) => sum + topic.size_bytes, 0);
  const readers = readersOf(topics, groups);
  return {
    ...steps(topics.map(({ name }) => ({ name, ...deletionOf(name) }))),
    title: topicWords.deleteManyTitle(topics.length),
    button: topicWords.delete,
    explanation: topicWords.deleteManyExplanation,
    fields: [],
    losses: [
      topicWords.losesMany(topics.length, bytes(size)),
      named(topics),
      ...(readers.length > 0 ? [topicWords.losesOffsets(named(readers))] : []),
    ],
    nameToType: topicWords.together(topics.length),
    done: () => topicWords.deletedMany(topics.length),
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

function named(things: readonly { name: string }[]): string {
  const names = things.slice(0, NAMES_MAX).map(({ name }) => name);
  const more = things.length - names.length;
  return names.join(', ') + (more > 0 ? words.andMore(more) : '');
}
