/** Which page is shown: the part of the address behind `#`, which never reaches a server. */

class Route {
  parts = $state.raw<string[]>(partsOf(location.hash));

  constructor() {
    addEventListener('hashchange', () => (this.parts = partsOf(location.hash)));
  }

  get page(): string {
    return this.parts[0] ?? 'overview';
  }
}

function partsOf(hash: string): string[] {
  return hash.replace(/^#\/?/, '').split('/').filter(Boolean).map(decoded);
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function hashOf(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join('/')}`;
}

export const route = new Route();
