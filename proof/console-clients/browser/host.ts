/**
 * The other end of a scenario: the test that started it, which owns the daemon and the console. It
 * is asked a line at a time on standard output and answers on standard input.
 */
import { createInterface } from 'node:readline';

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Asks for something to be done; what it says is the answer. */
export async function ask(...words: string[]): Promise<string> {
  process.stdout.write(`ask ${JSON.stringify(words)}\n`);
  const { value, done } = await lines.next();
  if (done === true) throw new Error(`nobody answered ${words.join(' ')}`);
  const answer = JSON.parse(value) as { done: string } | { failed: string };
  if ('failed' in answer) throw new Error(`${words.join(' ')}: ${answer.failed}`);
  return answer.done;
}

/** A measurement, which is shown beside the suite's result. */
export function note(text: string): void {
  process.stdout.write(`measured: ${text}\n`);
}
