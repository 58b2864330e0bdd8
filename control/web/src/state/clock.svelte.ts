/** The time of day, for ages that grow while they are looked at. */

const TICK_MS = 1_000;

class Clock {
  unixMs = $state(Date.now());

  constructor() {
    setInterval(() => (this.unixMs = Date.now()), TICK_MS);
  }

  /** How long ago that was, in whole seconds. */
  age(unixMs: number): number {
    return Math.max(0, Math.round((this.unixMs - unixMs) / 1_000));
  }
}

export const clock = new Clock();
