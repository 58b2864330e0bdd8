import jsQR from 'jsqr';
import { describe, expect, it } from 'vitest';
import { qrOf } from './qr';

const SCALE = 4;

/** What another program reads in the picture. */
function read({ size, path }: { size: number; path: string }): string | undefined {
  const side = size * SCALE;
  const pixels = new Uint8ClampedArray(side * side * 4).fill(255);
  for (const [, x, y] of path.matchAll(/M(\d+) (\d+)h1v1h-1z/g)) {
    for (let row = 0; row < SCALE; row += 1) {
      const first = (Number(y) * SCALE + row) * side + Number(x) * SCALE;
      for (let at = first; at < first + SCALE; at += 1) pixels.fill(0, at * 4, at * 4 + 3);
    }
  }
  return jsQR(pixels, side, side)?.data;
}

describe('QR codes', () => {
  it('are read by another program, also with the longest name and host', () => {
    const secret = 'GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ';
    for (const [name, host] of [
      ['ann', 'localhost'],
      ['%40'.repeat(64), `${'a'.repeat(120)}%3A8443`],
    ]) {
      const issuer = `Memlane%20${host}`;
      const uri = `otpauth://totp/${issuer}:${name}?secret=${secret}&issuer=${issuer}`;
      expect(read(qrOf(uri))).toBe(uri);
    }
  });
});
