/**
 * Styles of a library that writes them as text into the page, which the console's policy forbids.
 * Here they become sheets of the document and properties of elements, which it allows. For that
 * the document makes elements in its own way, until that is ended; one at a time is the limit.
 */

export class Styles {
  private readonly sheets: CSSStyleSheet[] = [];

  constructor(private readonly page: Document) {
    Object.defineProperty(page, 'createElement', { value: this.create, configurable: true });
  }

  /** Ends it; the document is as it was before. */
  remove(): void {
    const { page } = this;
    if (page.createElement === this.create) Reflect.deleteProperty(page, 'createElement');
    const own = new Set(this.sheets.splice(0));
    page.adoptedStyleSheets = page.adoptedStyleSheets.filter((it) => !own.has(it));
  }

  private readonly create = (
    name: string,
    options?: string | ElementCreationOptions,
  ): HTMLElement => {
    const prototype = Object.getPrototypeOf(this.page) as Document;
    // The policy forbids a style even while it is empty; a template shows nothing either.
    const made = name === 'style' ? 'template' : name;
    const element = prototype.createElement.call(this.page, made, options as undefined);
    if (name === 'style') this.toSheet(element);
    if (name === 'span') element.setAttribute = setAttribute;
    return element;
  };

  /** What is written into the element goes to a sheet. */
  private toSheet(element: HTMLElement): void {
    const sheet = new CSSStyleSheet();
    this.sheets.push(sheet);
    this.page.adoptedStyleSheets = [...this.page.adoptedStyleSheets, sheet];
    let written = '';
    Object.defineProperty(element, 'textContent', {
      configurable: true,
      get: () => written,
      set: (text: string | null) => {
        written = text ?? '';
        sheet.replaceSync(written);
      },
    });
  }
}

/** As the element's own, but that a style is set by properties. */
function setAttribute(this: HTMLElement, name: string, value: string): void {
  if (name === 'style') this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
}
