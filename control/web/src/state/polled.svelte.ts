/** Something that is read again and again while a page shows it. */
import { untrack } from 'svelte';
import { Refusal, get } from '../api/calls';

export class Polled<T> {
  value = $state.raw<T | null>(null);
  failure = $state<string | null>(null);
  /** The status of the answer that failed; 0: none came. */
  status = $state(0);
  /** When `value` was told; null: never. */
  toldAt = $state<number | null>(null);
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isWanted = false;
  private generation = 0;

  /**
   * `path` is asked for each time; null: it is not served, or not to who is logged in, and nothing
   * is asked. Begins with the component that makes it and ends with it.
   */
  constructor(
    private readonly path: () => string | null,
    private readonly intervalMs: number,
  ) {
    const wanted = $derived(path());
    $effect(() => {
      if (wanted === null) return;
      this.isWanted = true;
      untrack(() => this.refresh());
      return () => {
        this.isWanted = false;
        this.generation += 1;
        clearTimeout(this.timer);
      };
    });
  }

  /** Whether `value` is what was told at the last time of asking. */
  get isFresh(): boolean {
    return this.failure === null;
  }

  refresh(): void {
    clearTimeout(this.timer);
    this.generation += 1;
    void this.read(this.generation);
  }

  private async read(generation: number): Promise<void> {
    const path = this.path();
    if (path === null) return;
    try {
      const value = await get<T>(path);
      if (generation !== this.generation) return;
      this.value = value;
      this.toldAt = Date.now();
      this.failure = null;
      this.status = 0;
    } catch (error) {
      if (generation !== this.generation) return;
      // What was known last is shown on while nobody answers.
      const isAnswer = error instanceof Refusal && error.status >= 400 && error.status < 500;
      if (isAnswer) this.value = null;
      this.status = error instanceof Refusal ? error.status : 0;
      this.failure = error instanceof Error ? error.message : String(error);
    }
    if (this.isWanted) this.schedule();
  }

  private schedule(): void {
    this.timer = setTimeout(() => {
      if (document.hidden) this.schedule();
      else this.refresh();
    }, this.intervalMs);
  }
}
