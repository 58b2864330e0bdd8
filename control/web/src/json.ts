/**
 * JSON as a tree to look at: each number and name as it was written, since a parser would round one
 * and drop the other of two alike.
 */

export type Node =
  | { kind: 'leaf'; text: string }
  | { kind: 'list'; children: Node[] }
  | { kind: 'object'; children: { name: string; value: Node }[] };

/** What lies deeper is shown as text. */
const DEPTH_MAX = 64;

/** The tree of an object or a list; null: the text is neither, and is shown as it is. */
export function treeOf(text: string): Node | null {
  if (!/^\s*[[{]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  return new Reader(text).value(0);
}

/** Reads text that is known to be JSON. */
class Reader {
  private at = 0;

  constructor(private readonly text: string) {}

  value(depth: number): Node {
    const first = this.next();
    if (depth === DEPTH_MAX && (first === '{' || first === '[')) return this.nested();
    if (first === '{') {
      return { kind: 'object', children: this.items('}', () => this.member(depth)) };
    }
    if (first === '[') {
      return { kind: 'list', children: this.items(']', () => this.value(depth + 1)) };
    }
    return { kind: 'leaf', text: this.taken(/"(?:[^"\\]|\\.)*"|[^\s,\]}]+/y) };
  }

  private member(depth: number): { name: string; value: Node } {
    this.next();
    const name = JSON.parse(this.taken(/"(?:[^"\\]|\\.)*"/y)) as string;
    this.next();
    this.at += 1;
    return { name, value: this.value(depth + 1) };
  }

  /** What stands between brackets, to the closing one. */
  private items<T>(end: string, item: () => T): T[] {
    const found: T[] = [];
    this.at += 1;
    while (this.next() !== end) {
      if (this.text[this.at] === ',') this.at += 1;
      else found.push(item());
    }
    this.at += 1;
    return found;
  }

  /** All of a value with brackets, as text. */
  private nested(): Node {
    const start = this.at;
    let open = 0;
    do {
      const part = this.taken(/"(?:[^"\\]|\\.)*"|[^"]/y);
      if (part === '{' || part === '[') open += 1;
      if (part === '}' || part === ']') open -= 1;
    } while (open > 0);
    return { kind: 'leaf', text: this.text.slice(start, this.at) };
  }

  /** The next character that is no space. */
  private next(): string {
    this.taken(/\s*/y);
    return this.text[this.at] ?? '';
  }

  private taken(what: RegExp): string {
    what.lastIndex = this.at;
    const found = what.exec(this.text)?.[0] ?? '';
    this.at += found.length;
    return found;
  }
}
