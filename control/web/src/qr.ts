/** QR codes, made in the page: what stands in one is sent to nobody. */
import { encode } from 'uqr';

/** Light modules around it, which readers need (ISO/IEC 18004). */
const BORDER = 4;

/** The side of a QR code, and a path of its dark modules. */
export function qrOf(text: string): { size: number; path: string } {
  const { size, data } = encode(text, { ecc: 'M', border: BORDER });
  const path = data
    .flatMap((row, y) => row.map((isDark, x) => (isDark ? `M${x} ${y}h1v1h-1z` : '')))
    .join('');
  return { size, path };
}
