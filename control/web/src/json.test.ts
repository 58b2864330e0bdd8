import { expect, test } from 'vitest';
import { treeOf, type Node } from './json';

/** The tree as JSON again, without spaces. */
function written(node: Node): string {
  if (node.kind === 'leaf') return node.text;
  if (node.kind === 'list') return `[${node.children.map(written).join(',')}]`;
  const members = node.children.map(
    ({ name, value }) => `${JSON.stringify(name)}:${written(value)}`,
  );
  return `{${members.join(',')}}`;
}

test.each([
  '{}',
  '[]',
  '{"a":12345678901234567890,"b":[1.50,true,null,"x\\"y,]}"],"a":-0}',
  '[[[]],{"":{"b":"\\\\"}},"\\u00e9"]',
  `${'['.repeat(200)}"]"${']'.repeat(200)}`,
])('each number, name and text is as it was written: %s', (text) => {
  const tree = treeOf(text);
  expect(tree && written(tree)).toBe(text);
  const spaced = treeOf(`\n ${text.length > 100 ? text : text.replace(/,/g, ' ,\t')} `);
  if (!text.includes('"x')) expect(spaced && written(spaced)).toBe(text);
});

test.each(['', '12', '"text"', '{"a":}', '[1', 'null'])('no tree stands in %s', (text) => {
  expect(treeOf(text)).toBeNull();
});
