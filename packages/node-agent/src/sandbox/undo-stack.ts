/** What to put back when a start fails or a sandbox ends: in reverse order, each once, all errors collected. */
export class UndoStack {
  readonly #steps: { name: string; undo: () => Promise<void> }[] = [];

  /** Adds the reversal of a step that is about to be done; it must be safe even if the step never ran. */
  push(name: string, undo: () => Promise<void>): void {
    this.#steps.push({ name, undo });
  }

  /**
   * Runs every reversal, newest first, and forgets them.
   * @returns what failed, each with the name of its step
   */
  async run(): Promise<{ name: string; error: unknown }[]> {
    const failed: { name: string; error: unknown }[] = [];
    for (let step = this.#steps.pop(); step; step = this.#steps.pop()) {
      try {
        await step.undo();
      } catch (error) {
        failed.push({ name: step.name, error });
      }
    }
    return failed;
  }
}
