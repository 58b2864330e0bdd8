/** Queries that a user ran last, and those that they saved; kept in this browser alone. */

export interface SavedQuery {
  name: string;
  text: string;
}

/** The oldest go. */
export const EARLIER_MAX = 20;
/** More are not saved. */
export const SAVED_MAX = 50;
/** Longer ones are not kept: a browser has few MiB for all pages of a host. */
const TEXT_LENGTH_MAX = 16_384;

export class KeptQueries {
  earlier = $state.raw<readonly string[]>([]);
  saved = $state.raw<readonly SavedQuery[]>([]);
  /** Whether the browser keeps nothing, so that all goes with the page. */
  isLost = $state(false);
  private readonly key: string;

  constructor(user: string) {
    this.key = `memlane-queries ${user}`;
    try {
      const kept = JSON.parse(localStorage.getItem(this.key) ?? '{}') as Partial<KeptQueries>;
      this.earlier = (kept.earlier ?? []).filter((it) => typeof it === 'string');
      this.saved = (kept.saved ?? []).filter(
        (it) => typeof it.name === 'string' && typeof it.text === 'string',
      );
    } catch {
      // What cannot be read is as good as nothing.
      this.earlier = [];
      this.saved = [];
    }
  }

  /** It was run: it is the first of the earlier ones. */
  ran(text: string): void {
    if (text.length > TEXT_LENGTH_MAX) return;
    this.earlier = [text, ...this.earlier.filter((it) => it !== text)].slice(0, EARLIER_MAX);
    this.keep();
  }

  /** In the place of the one that has the name, if there is one. */
  save(name: string, text: string): void {
    if (!this.maySave(name, text)) return;
    const others = this.saved.filter((it) => it.name !== name);
    this.saved = [...others, { name, text }].sort((a, b) => a.name.localeCompare(b.name, 'en'));
    this.keep();
  }

  maySave(name: string, text: string): boolean {
    const isKnown = this.saved.some((it) => it.name === name);
    const hasRoom = isKnown || this.saved.length < SAVED_MAX;
    return name !== '' && text.trim() !== '' && text.length <= TEXT_LENGTH_MAX && hasRoom;
  }

  remove(name: string): void {
    this.saved = this.saved.filter((it) => it.name !== name);
    this.keep();
  }

  forgetEarlier(): void {
    this.earlier = [];
    this.keep();
  }

  private keep(): void {
    const { earlier, saved } = this;
    try {
      localStorage.setItem(this.key, JSON.stringify({ earlier, saved }));
      this.isLost = false;
    } catch {
      this.isLost = true;
    }
  }
}
