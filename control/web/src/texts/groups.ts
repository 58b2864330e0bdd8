/** Texts of consumer groups. */
import { many } from './many';

const partitions = (count: number): string => many(count, 'partition', 'partitions');
const offsets = (count: number): string => many(count, 'offset', 'offsets');

export const groups = {
  type: 'Type',
  gone: (name: string): string => `Group ${name} not found`,
  goneText: 'It was deleted, or its offsets have expired.',
  offsets: 'Offsets',
  committed: 'Committed offset',
  lagHint: 'Lag is the next offset of the partition minus the committed offset.',
  none: 'The group has committed no offsets.',
  noneNext: 'Offsets appear when its consumers commit.',
  forbidden: 'Resetting offsets requires the role operator.',
  notConfigured:
    'Resetting offsets requires the broker’s Kafka address: start memlane-console with --broker-kafka, which cannot be combined with --broker-users.',
  reset: 'Reset offsets',
  resetTitle: (group: string): string => `Reset offsets of ${group}`,
  resetExplanation:
    'Consumers continue at the new offsets. The group must have no members: stop its consumers first.',
  hasMembers: (count: number): string =>
    `The group has ${many(count, 'member', 'members')}; the broker refuses a reset until they have left.`,
  topics: 'Topics',
  allTopics: 'all of the group',
  to: 'Reset to',
  places: {
    earliest: 'earliest: the first offset',
    latest: 'latest: only new records',
    offset: 'an offset',
    time: 'a time',
  },
  offset: 'Offset',
  offsetHint: 'If a partition does not have this offset, its nearest end.',
  noOffset: 'An offset is a whole number.',
  time: 'Time',
  timeHint:
    'For example 2026-11-22T18:00:00Z. Consumers continue at the first record of that time or later.',
  noTime: 'Not a time such as 2026-11-22T18:00:00Z.',
  forgotten: (count: number): string => `The committed offsets of ${partitions(count)}`,
  skipped: (count: number): string => `${offsets(count)} will be skipped`,
  again: (count: number): string => `${offsets(count)} will be read again`,
  done: (group: string, count: number): string =>
    `The offsets of ${group} were reset in ${partitions(count)}.`,
};
