/** What can be done to groups of consumers. */
import { path } from '../api/calls';
import type { GroupDetails, OffsetChange, PartitionLag } from '../api/model';
import { texts } from '../texts';
import type { Operation, Values } from './operation';

const words = texts.groups;

const ALL = '';
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,3})?Z$/;

export function resetOffsets(group: GroupDetails): Operation {
  const name = group.group;
  return {
    title: words.resetTitle(name),
    button: words.reset,
    explanation:
      group.member_count === 0
        ? words.resetExplanation
        : `${words.resetExplanation} ${words.hasMembers(group.member_count)}`,
    fields: [
      {
        kind: 'select',
        name: 'topic',
        label: words.topics,
        value: ALL,
        choices: [
          { value: ALL, label: words.allTopics },
          ...group.topics.map(({ topic }) => ({ value: topic, label: topic })),
        ],
      },
      {
        kind: 'select',
        name: 'to',
        label: words.to,
        value: 'earliest',
        choices: Object.entries(words.places).map(([value, label]) => ({ value, label })),
      },
      {
        kind: 'number',
        name: 'offset',
        label: words.offset,
        hint: words.offsetHint,
        required: true,
        when: (values) => values.text('to') === 'offset',
        problem: (values) => {
          const text = values.text('offset');
          return text === '' || /^\d{1,15}$/.test(text) ? '' : words.noOffset;
        },
      },
      {
        kind: 'text',
        name: 'time',
        label: words.time,
        hint: words.timeHint,
        required: true,
        when: (values) => values.text('to') === 'time',
        problem: (values) => {
          const text = values.text('time');
          return text === '' || timeOf(text) !== null ? '' : words.noTime;
        },
      },
    ],
    furtherLosses: (values) => consequences(group, values),
    request: (values) => ({
      method: 'POST',
      path: path`/console/v1/groups/${name}/offsets`,
      body: { ...placeOf(values), topics: topicsOf(values) },
    }),
    command: (values) => [
      ...['group', 'reset', name, '--to', placeOnCommandLine(values)],
      ...topicsOf(values).flatMap((topic) => ['--topic', topic]),
    ],
    done: (_, answer) => words.done(name, (answer as OffsetChange[]).length),
  };
}

function topicsOf(values: Values): string[] {
  const topic = values.text('topic');
  return topic === ALL ? [] : [topic];
}

/** Milliseconds since 1970; null: it is no time. */
function timeOf(text: string): number | null {
  const time = TIME.test(text) ? Date.parse(text) : NaN;
  return Number.isNaN(time) || time < 0 ? null : time;
}

function placeOf(values: Values): { to: string; offset?: number; time_ms?: number } {
  const to = values.text('to');
  if (to === 'offset') return { to, offset: Number(values.text('offset')) };
  if (to === 'time') return { to, time_ms: timeOf(values.text('time')) ?? 0 };
  return { to };
}

function placeOnCommandLine(values: Values): string {
  const to = values.text('to');
  return to === 'offset' || to === 'time' ? values.text(to) : to;
}

/** What becomes of the group. The broker alone knows the offset of a time. */
function consequences(group: GroupDetails, values: Values): string[] {
  const chosen = values.text('topic');
  const partitions = group.topics
    .filter(({ topic }) => chosen === ALL || topic === chosen)
    .flatMap((topic) => topic.partitions);
  const moves = partitions.map((partition) => {
    const next = nextOf(partition, values);
    return next === null ? 0 : next - partition.committed_offset;
  });
  const sum = (counts: number[]): number => counts.reduce((all, one) => all + one, 0);
  const skipped = sum(moves.filter((move) => move > 0));
  const again = -sum(moves.filter((move) => move < 0));
  return [
    words.forgotten(partitions.length),
    ...(skipped > 0 ? [words.skipped(skipped)] : []),
    ...(again > 0 ? [words.again(again)] : []),
  ];
}

function nextOf(partition: PartitionLag, values: Values): number | null {
  const { start_offset: start, end_offset: end } = partition;
  switch (values.text('to')) {
    case 'earliest':
      return start;
    case 'latest':
      return end;
    case 'offset':
      return Math.min(Math.max(Number(values.text('offset')), start), end);
    default:
      return null;
  }
}
