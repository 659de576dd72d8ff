/** Facts about sandboxes, for whoever listens: the report stream of the control plane. */
import type { SandboxReport } from '@sandlot/protocol';

/** Passes each changed report to all listeners. */
export class ReportHub {
  readonly #listeners = new Set<(report: SandboxReport) => void>();

  publish(report: SandboxReport): void {
    for (const listener of this.#listeners) listener(report);
  }

  /** @returns stops listening */
  subscribe(listener: (report: SandboxReport) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
