/**
 * What the console tells by itself, each second: the daemon's state, its pool, volumes and tasks.
 * Connects again, ever less often, until it is told to end.
 */
import type { DaemonState, Pool, Task, Volume } from '../api/model';
import { session } from './session.svelte';

const EVENTS_PATH = '/console/v1/events';
const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 8_000;
/** The console sends every second; a line that is silent for so long is dead. */
const SILENCE_MS_MAX = 10_000;

class Live {
  /** Whether the console answers. */
  isConnected = $state(true);
  daemon = $state<DaemonState>('up');
  pool = $state.raw<Pool | null>(null);
  volumes = $state.raw<Volume[] | null>(null);
  /** null: not told yet. */
  tasks = $state.raw<Task[] | null>(null);
  /** When the daemon told of itself last; null: never. */
  toldAt = $state<number | null>(null);
  /** Counts how often the daemon came back, so that what was read before can be read again. */
  returns = $state(0);

  /** Whether what is shown is what holds now. */
  get isFresh(): boolean {
    return this.isConnected && this.daemon === 'up';
  }

  private source: EventSource | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private watchdog: ReturnType<typeof setTimeout> | undefined;
  private retryMs = RETRY_MS_MIN;

  /** For who is logged in now: what others were told is forgotten. */
  begin(): void {
    this.end();
    Object.assign(this, { pool: null, volumes: null, tasks: null, toldAt: null });
    this.connect();
  }

  end(): void {
    clearTimeout(this.timer);
    clearTimeout(this.watchdog);
    this.source?.close();
    this.source = null;
  }

  private connect(): void {
    const source = new EventSource(EVENTS_PATH);
    this.source = source;
    this.watch();
    const listen = <T>(kind: string, take: (value: T) => void): void => {
      source.addEventListener(kind, (message: MessageEvent<string>) => {
        this.isConnected = true;
        this.retryMs = RETRY_MS_MIN;
        this.watch();
        take(JSON.parse(message.data) as T);
      });
    };
    listen<{ state: DaemonState }>('daemon', ({ state }) => {
      if (state === 'up' && this.daemon === 'down') this.returns += 1;
      this.daemon = state;
    });
    listen<Pool>('pool', (pool) => (this.pool = pool));
    listen<Volume[]>('volumes', (volumes) => {
      this.volumes = volumes;
      this.toldAt = Date.now();
    });
    listen<Task[]>('tasks', (tasks) => (this.tasks = tasks));
    source.onerror = () => this.reconnect();
  }

  private watch(): void {
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => this.reconnect(), SILENCE_MS_MAX);
  }

  private reconnect(): void {
    this.end();
    this.isConnected = false;
    this.timer = setTimeout(() => {
      // A session that has ended, or may do nothing yet, is no reason to knock again and again.
      void session.load().then(() => {
        if (session.current?.must_enrol === false) this.connect();
      });
    }, this.retryMs);
    this.retryMs = Math.min(this.retryMs * 2, RETRY_MS_MAX);
  }
}

export const live = new Live();
