/** What the broker told last, kept while it is away. */
import type { MessageLog } from '../api/model';
import type { Polled } from './polled.svelte';

export class KnownLog {
  /** As it was told when the broker answered last; null: it never did. */
  known = $state.raw<MessageLog | null>(null);
  toldAt = $state<number | null>(null);

  /** Begins with the component that makes it and ends with it. */
  constructor(readonly asked: Polled<MessageLog>) {
    $effect(() => {
      const { value, toldAt } = this.asked;
      if (value?.state !== 'up') return;
      this.known = value;
      this.toldAt = toldAt;
    });
  }

  /** How the broker is now; null: nobody has told yet. The console away is as good as down. */
  get state(): MessageLog['state'] | null {
    const { value, failure } = this.asked;
    return value !== null && failure !== null ? 'down' : (value?.state ?? null);
  }
}
