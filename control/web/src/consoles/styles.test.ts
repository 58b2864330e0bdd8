import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Styles } from './styles';

class Sheet {
  text = '';
  replaceSync(text: string): void {
    this.text = text;
  }
}

/** What would be written into the page, which the policy forbids. */
let forbidden: string[] = [];

class FakeElement {
  readonly style = { cssText: '' };
  readonly attributes = new Map<string, string>();
  constructor(readonly name: string) {}
  get textContent(): string {
    return '';
  }
  set textContent(text: string) {
    if (this.name === 'style') forbidden.push(text);
  }
  setAttribute(name: string, value: string): void {
    if (name === 'style') forbidden.push(value);
    this.attributes.set(name, value);
  }
}

class FakeDocument {
  adoptedStyleSheets: Sheet[] = [new Sheet()];
  createElement(name: string): FakeElement {
    return new FakeElement(name);
  }
}

function made(): { page: FakeDocument; styles: Styles } {
  const page = new FakeDocument();
  return { page, styles: new Styles(page as unknown as Document) };
}

beforeEach(() => {
  forbidden = [];
  vi.stubGlobal('CSSStyleSheet', Sheet);
  vi.stubGlobal('Element', FakeElement);
});

afterEach(() => vi.unstubAllGlobals());

test('the text of a style becomes a sheet of the document', () => {
  const { page } = made();
  const style = page.createElement('style');
  style.textContent = 'a {}';
  style.textContent = 'b {}';
  expect(style.textContent).toBe('b {}');
  expect((style as unknown as { name: string }).name).not.toBe('style');
  expect(page.adoptedStyleSheets.map((sheet) => sheet.text)).toEqual(['', 'b {}']);
  expect(forbidden).toEqual([]);
});

test('the style of a span is set by its properties, other attributes as they are', () => {
  const { page } = made();
  const span = page.createElement('span');
  span.setAttribute('style', 'color:#fff;');
  span.setAttribute('title', 'x');
  expect(span.style.cssText).toBe('color:#fff;');
  expect([...span.attributes]).toEqual([['title', 'x']]);
  expect(forbidden).toEqual([]);
});

test('at the end the document is as it was before', () => {
  const { page, styles } = made();
  page.createElement('style').textContent = 'a {}';
  styles.remove();
  expect(page.adoptedStyleSheets.length).toBe(1);
  expect(Object.hasOwn(page, 'createElement')).toBe(false);
  page.createElement('style').textContent = 'b {}';
  expect(forbidden).toEqual(['b {}']);
});

test('an earlier one does not end a later one', () => {
  const { page, styles } = made();
  const later = new Styles(page as unknown as Document);
  styles.remove();
  page.createElement('style').textContent = 'a {}';
  expect(forbidden).toEqual([]);
  later.remove();
  expect(page.adoptedStyleSheets.length).toBe(1);
});
