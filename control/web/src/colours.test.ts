/**
 * The colours of charts and bars are apart for everybody: for those who see all colours, and for
 * those who lack one kind of cone. A checker of pages cannot see that in a picture.
 */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

type Colour = readonly [red: number, green: number, blue: number];
type Matrix = readonly [Colour, Colour, Colour];

const STYLE = readFileSync(new URL('./styles/colours.css', import.meta.url), 'utf8');

/** Colours that are used side by side as lines or parts. The last one is that of free memory. */
const CHART_COLOURS = 7;
/** A difference of 2 is just seen side by side (CIE76); lines and parts lie further away. */
const DISTANCE_MIN = 35;
/** What WCAG 2.2 asks for between a picture's parts and what is behind them (1.4.11). */
const CONTRAST_MIN = 3;

/** How colours look without one kind of cone, on linear light (Machado and others, 2009). */
const EYES: Record<string, Matrix> = {
  'all cones': [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

/** Linear light of a colour of the style, in the light theme or the dark one. */
function colour(name: string, theme: 'light' | 'dark'): Colour {
  const pair = new RegExp(`--${name}: light-dark\\(#([0-9a-f]{6}), #([0-9a-f]{6})\\)`).exec(STYLE);
  const hex = pair?.[theme === 'light' ? 1 : 2];
  if (hex === undefined) throw new Error(`the style has no pair of colours --${name}`);
  const part = (at: number): number => {
    const value = parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return [part(0), part(2), part(4)];
}

function seen(colour: Colour, eye: Matrix): Colour {
  const row = (weights: Colour): number => {
    const sum = weights[0] * colour[0] + weights[1] * colour[1] + weights[2] * colour[2];
    return Math.min(1, Math.max(0, sum));
  };
  return [row(eye[0]), row(eye[1]), row(eye[2])];
}

/** CIE L*a*b* under D65. */
function lab([r, g, b]: Colour): Colour {
  const bent = (t: number): number => (t > 216 / 24389 ? Math.cbrt(t) : (841 / 108) * t + 4 / 29);
  const x = bent((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047);
  const y = bent(0.2126 * r + 0.7152 * g + 0.0722 * b);
  const z = bent((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

function distance(a: Colour, b: Colour): number {
  const [first, second] = [lab(a), lab(b)];
  return Math.hypot(first[0] - second[0], first[1] - second[1], first[2] - second[2]);
}

function contrast(a: Colour, b: Colour): number {
  const light = ([r, g, b]: Colour): number => 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  return Math.max(light(a), light(b)) / Math.min(light(a), light(b));
}

const THEMES = ['light', 'dark'] as const;

test.each(THEMES)('colours of charts are apart for every eye, %s', (theme) => {
  const colours = [...Array(CHART_COLOURS).keys()].map((at) => colour(`chart-${at}`, theme));
  for (const [name, eye] of Object.entries(EYES)) {
    colours.forEach((one, first) => {
      colours.slice(first + 1).forEach((other, offset) => {
        const pair = `${first} and ${first + 1 + offset}, ${name}`;
        const apart = distance(seen(one, eye), seen(other, eye));
        expect(apart, pair).toBeGreaterThan(DISTANCE_MIN);
      });
    });
  }
});

test.each(THEMES)('lines stand out from what is behind them, %s', (theme) => {
  const back = colour('back', theme);
  // The last colour fills what is free inside a frame that stands out itself.
  for (let at = 0; at < CHART_COLOURS - 1; at += 1) {
    const found = contrast(colour(`chart-${at}`, theme), back);
    expect(found, `--chart-${at}`).toBeGreaterThan(CONTRAST_MIN);
  }
  expect(contrast(colour('control', theme), back)).toBeGreaterThan(CONTRAST_MIN);
});
