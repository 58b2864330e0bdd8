/** Texts of consumer groups. */
import { many } from './many';

const partitions = (count: number): string => many(count, 'partition', 'partitions');
const offsets = (count: number): string => many(count, 'offset', 'offsets');

export const groups = {
  type: 'Type',
  offsets: 'Offsets',
  committed: 'Committed offset',
  lagHint: 'Lag is the difference of the next offset of a partition and the committed offset.',
  none: 'The group has committed no offsets.',
  noneNext: 'They appear once its consumers commit how far they have read.',
  forbidden: 'Resetting offsets takes the role operator.',
  notConfigured:
    'Resetting offsets needs the address where the broker serves Kafka’s clients: start the console with --broker-kafka. It does not go together with --broker-users.',
  reset: 'Reset offsets',
  resetTitle: (group: string): string => `Reset offsets of ${group}`,
  resetExplanation:
    'Consumers of the group go on from the new offsets. This takes a group without members: stop its consumers first.',
  hasMembers: (count: number): string =>
    `The group has ${many(count, 'member', 'members')} now. As long as it has any, the broker refuses this.`,
  topics: 'Topics',
  allTopics: 'all of the group',
  to: 'Reset to',
  places: {
    earliest: 'the first offset',
    latest: 'the next offset: only what comes from now on',
    offset: 'an offset',
    time: 'a time',
  },
  offset: 'Offset',
  offsetHint: 'Where a partition does not reach so far, its nearest end.',
  noOffset: 'An offset is a whole number.',
  time: 'Time',
  timeHint:
    'As 2026-11-22T18:00:00Z. The first record of that time or later is the next to be read.',
  noTime: 'This is no time as 2026-11-22T18:00:00Z.',
  forgotten: (count: number): string => `The committed offsets of ${partitions(count)}`,
  skipped: (count: number): string => `${offsets(count)} will be passed over and not be read`,
  again: (count: number): string => `${offsets(count)} will be read again`,
  done: (group: string, count: number): string =>
    `The offsets of ${group} are reset in ${partitions(count)}.`,
};
