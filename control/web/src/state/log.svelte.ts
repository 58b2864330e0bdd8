/** What the broker told last, kept while it is away. */
import type { MessageLog } from '../api/model';
import { Polled } from './polled.svelte';
import { session } from './session.svelte';

const TOPICS_PATH = '/console/v1/topics';

export class KnownLog {
  readonly asked: Polled<MessageLog>;
  /** As it was told when the broker answered last; null: it never did. */
  known = $state.raw<MessageLog | null>(null);
  toldAt = $state<number | null>(null);

  /** Begins with the component that makes it and ends with it. */
  constructor(intervalMs: number) {
    this.asked = new Polled<MessageLog>(
      () => (session.serves('broker') ? TOPICS_PATH : null),
      intervalMs,
    );
    $effect(() => {
      const { value, toldAt } = this.asked;
      if (value?.state !== 'up') return;
      this.known = value;
      this.toldAt = toldAt;
    });
  }

  /** How the broker is now; null: nobody has told yet. The console away is as good as down. */
  get state(): MessageLog['state'] | null {
    if (!session.serves('broker')) return 'not_configured';
    const { value, failure } = this.asked;
    return value !== null && failure !== null ? 'down' : (value?.state ?? null);
  }

  /** Why it is down. */
  get failure(): string {
    return this.asked.value?.failure ?? this.asked.failure ?? '';
  }
}
