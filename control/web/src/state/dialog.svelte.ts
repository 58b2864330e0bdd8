/** The operation whose dialog is open, if one is. */
import type { Operation } from '../operations/operation';

class DialogState {
  operation = $state.raw<Operation | null>(null);
  private after: () => void = () => undefined;

  /** `after` is called once the operation is done. */
  open(operation: Operation, after: () => void = () => undefined): void {
    this.after = after;
    this.operation = operation;
  }

  close(): void {
    this.operation = null;
  }

  finished(): void {
    this.after();
  }
}

export const dialog = new DialogState();
