/** The guide through the first volume, as far as a user has come; kept in this browser alone. */
import { BROKER_OWNER, type Volume } from '../api/model';

interface Kept {
  /** The volume that was made by the guide. */
  volume?: string;
  isOver?: boolean;
}

export class FirstRun {
  private kept = $state.raw<Kept>({});
  private readonly key: string;

  constructor(user: string) {
    this.key = `memlane-first-run ${user}`;
    try {
      const { volume, isOver } = JSON.parse(localStorage.getItem(this.key) ?? '{}') as Kept;
      if (typeof volume === 'string') this.kept = { volume };
      if (isOver === true) this.kept = { isOver };
    } catch {
      // What cannot be read is as good as nothing.
    }
  }

  /**
   * Shown where there is no volume yet but those that a broker made, and until its end for the one
   * that it made.
   */
  isShown(volumes: readonly Volume[] | null): boolean {
    if (volumes === null || this.kept.isOver === true) return false;
    return volumes.every(({ owner }) => owner === BROKER_OWNER) || this.volumeOf(volumes) !== null;
  }

  volumeOf(volumes: readonly Volume[] | null): Volume | null {
    return volumes?.find(({ name }) => name === this.kept.volume) ?? null;
  }

  made(volume: string): void {
    this.keep({ volume });
  }

  /** It is finished, or nobody wants it. */
  end(): void {
    this.keep({ isOver: true });
  }

  private keep(kept: Kept): void {
    this.kept = kept;
    try {
      localStorage.setItem(this.key, JSON.stringify(kept));
    } catch {
      // A browser that keeps nothing shows the guide again while there is no volume.
    }
  }
}
