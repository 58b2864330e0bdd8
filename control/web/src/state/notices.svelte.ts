/** Short messages on what was done. The newest stay until they are dismissed or pushed out. */

const NOTICES_MAX = 3;

export interface Notice {
  id: number;
  text: string;
}

class Notices {
  list = $state.raw<Notice[]>([]);
  private nextId = 1;

  say(text: string): void {
    this.list = [...this.list, { id: this.nextId, text }].slice(-NOTICES_MAX);
    this.nextId += 1;
  }

  dismiss(id: number): void {
    this.list = this.list.filter((notice) => notice.id !== id);
  }
}

export const notices = new Notices();
