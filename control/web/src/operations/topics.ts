/** What can be done to topics. */
import { path } from '../api/calls';
import type { Group, Topic, TopicDetails } from '../api/model';
import { bytes } from '../format';
import { texts } from '../texts';
import type { Operation, Step, Values } from './operation';

const words = texts.log;

const BY_KEY = 'by key';

export function produceRecord(topic: TopicDetails): Operation {
  return {
    title: words.produceTitle(topic.name),
    button: words.produce,
    fields: [
      { kind: 'text', name: 'key', label: words.key, hint: words.keyHint },
      {
        kind: 'lines',
        name: 'value',
        label: words.value,
        when: (values) => !values.check('delete'),
      },
      {
        kind: 'check',
        name: 'delete',
        label: words.noValue,
        hint: words.noValueHint,
        value: false,
      },
      {
        kind: 'lines',
        name: 'headers',
        label: words.headers,
        hint: words.headersHint,
        problem: (values) => headersOf(values).problem,
      },
      {
        kind: 'select',
        name: 'partition',
        label: words.partition,
        hint: words.partitionHint,
        value: BY_KEY,
        choices: [
          { value: BY_KEY, label: words.byKey },
          ...topic.partitions.map(({ partition }) => {
            return { value: String(partition), label: String(partition) };
          }),
        ],
      },
    ],
    request: (values) => ({
      method: 'POST',
      path: path`/console/v1/topics/${topic.name}/records`,
      body: recordOf(values),
    }),
    command: (values) => ['sql', '-c', insertOf(topic.name, values)],
    done: () => words.produced(topic.name),
  };
}

export function deleteTopic(topic: TopicDetails, groups: readonly Group[]): Operation {
  const { request, command } = deletionOf(topic.name);
  const readers = readersOf([topic], groups).map(({ name }) => name);
  return {
    title: words.deleteTitle(topic.name),
    button: words.delete,
    explanation: words.deleteExplanation,
    fields: [],
    losses: [
      words.losesTopic(topic.partition_count, bytes(topic.size_bytes)),
      ...(readers.length > 0 ? [words.losesOffsets(readers.join(', '))] : []),
    ],
    nameToType: topic.name,
    request: () => request,
    command: () => command,
    done: () => words.deleted(topic.name),
  };
}

/** The request that deletes a topic, and the command that does the same. */
export function deletionOf(name: string): Omit<Step, 'name'> {
  return {
    request: { method: 'DELETE', path: path`/console/v1/topics/${name}` },
    command: ['topic', 'delete', name],
  };
}

/** The groups that have committed offsets of one of these topics. */
export function readersOf(
  topics: readonly Topic[],
  groups: readonly Group[],
): readonly { name: string }[] {
  const names = new Set(topics.map(({ name }) => name));
  return groups
    .filter((group) => group.topics.some(({ topic }) => names.has(topic)))
    .map(({ group }) => ({ name: group }));
}

interface NewRecord {
  key: string | null;
  value: string | null;
  headers: Record<string, string>;
  partition: number | null;
}

function recordOf(values: Values): NewRecord {
  const key = values.exactly('key');
  const partition = values.text('partition');
  return {
    key: key === '' ? null : key,
    value: values.check('delete') ? null : values.exactly('value'),
    headers: headersOf(values).headers,
    partition: partition === BY_KEY ? null : Number(partition),
  };
}

/** Of each line the name, up to the first colon, and the value. */
function headersOf(values: Values): { headers: Record<string, string>; problem: string } {
  const headers = new Map<string, string>();
  for (const line of values.exactly('headers').split('\n')) {
    if (line.trim() === '') continue;
    const colon = line.indexOf(':');
    if (colon < 1) return { headers: {}, problem: words.headerWithoutName(line) };
    const name = line.slice(0, colon).trim();
    if (headers.has(name)) return { headers: {}, problem: words.headerTwice(name) };
    headers.set(name, line.slice(colon + 1).trim());
  }
  return { headers: Object.fromEntries(headers), problem: '' };
}

function insertOf(topic: string, values: Values): string {
  const { key, value, headers, partition } = recordOf(values);
  const columns = ['key', 'value', 'headers'];
  const written = [key, value, Object.keys(headers).length > 0 ? JSON.stringify(headers) : null];
  const literals = written.map((text) => {
    return text === null ? 'NULL' : `'${text.replaceAll("'", "''")}'`;
  });
  if (partition !== null) {
    columns.push('partition');
    literals.push(String(partition));
  }
  const table = `"${topic.replaceAll('"', '""')}"`;
  return `INSERT INTO ${table} (${columns.join(', ')}) VALUES (${literals.join(', ')})`;
}
