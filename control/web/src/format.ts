/** Numbers, sizes and times as people read them. All sizes are binary: 1 GiB has 2^30 bytes. */

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'] as const;
const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Three significant digits in the largest unit that fits, as the command line prints them. */
export function bytes(count: number): string {
  let unit = 0;
  let value = count;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? String(Math.round(value)) : threeDigits(value)} ${UNITS[unit] ?? ''}`;
}

/** Exact, in the largest unit that divides it: what reads back as the same size. */
export function exactBytes(count: number): string {
  let unit = 0;
  let value = count;
  while (value > 0 && value % 1024 === 0 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 ? String(value) : `${value}${UNITS[unit] ?? ''}`;
}

export function threeDigits(value: number): string {
  if (value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** `1,234` below a million, `1.23 M` from there on. */
export function count(value: number): string {
  if (value >= 1e9) return `${threeDigits(value / 1e9)} G`;
  if (value >= 1e6) return `${threeDigits(value / 1e6)} M`;
  return value >= 100 ? Math.round(value).toLocaleString('en') : trimmed(value);
}

export function bytesPerSecond(value: number): string {
  return `${bytes(value)}/s`;
}

export function microseconds(value: number): string {
  if (value >= 1e6) return `${threeDigits(value / 1e6)} s`;
  return value >= 1000 ? `${threeDigits(value / 1000)} ms` : `${threeDigits(value)} µs`;
}

export function ratio(value: number | null | undefined): string {
  return value === null || value === undefined ? '–' : `${threeDigits(value)}×`;
}

export function percent(part: number, whole: number): string {
  if (whole <= 0) return '–';
  const value = (100 * part) / whole;
  return value > 0 && value < 0.1 ? '< 0.1 %' : `${trimmed(value)} %`;
}

/** The two largest units: `3 d 4 h`, `12 min 5 s`, `0.4 s`. */
export function duration(seconds: number): string {
  if (seconds > 0 && seconds < 0.1) return 'less than 0.1 s';
  if (seconds < 10) return `${trimmed(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < MINUTE) return `${whole} s`;
  if (whole < HOUR) return twoUnits(whole, MINUTE, 'min', 1, 's');
  if (whole < DAY) return twoUnits(whole, HOUR, 'h', MINUTE, 'min');
  return twoUnits(whole, DAY, 'd', HOUR, 'h');
}

/** `2026-03-01 14:05:09` on the clock of who reads it. */
export function time(unixSeconds: number): string {
  const at = new Date(unixSeconds * 1000);
  const two = (value: number): string => String(value).padStart(2, '0');
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** `2026-03-01 14:05:09.250` in UTC, as SQL shows it here. */
export function utc(unixSeconds: number): string {
  return new Date(unixSeconds * 1000).toISOString().replace('T', ' ').replace('Z', '');
}

/** What of a time stands on an axis that spans so many seconds. */
export function axisTime(time: string, spanSeconds: number): string {
  if (spanSeconds < 10) return time.slice(11);
  if (spanSeconds <= HOUR) return time.slice(11, 19);
  if (spanSeconds <= DAY) return time.slice(11, 16);
  return spanSeconds <= 60 * DAY ? time.slice(5, 16) : time.slice(0, 10);
}

function trimmed(value: number): string {
  return String(Number(value.toFixed(1)));
}

function twoUnits(whole: number, large: number, name: string, small: number, rest: string): string {
  const first = Math.floor(whole / large);
  const second = Math.floor((whole % large) / small);
  return second === 0 ? `${first} ${name}` : `${first} ${name} ${second} ${rest}`;
}
