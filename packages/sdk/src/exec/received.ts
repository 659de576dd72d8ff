/**
 * How much of a session's output has come in, so that a stream that is opened again goes on exactly
 * there. Output may be lost on its way at every hop of a broken connection; only this side knows what
 * came in. Made by `exec/start.ts`, kept by the process object; the forms are in protocol's `guest-api.ts`.
 */
import { randomUUID } from 'node:crypto';
import type { ExecPosition } from '@sandlot/protocol';

const fields = ['stdout', 'stderr', 'pty', 'dropped'] as const;
/** Confirmed each time so much came in: well before the server's window of 256 KiB is used up. */
const confirmEachBytes = 64 * 1024;

/** One client's count. */
export class Received {
  readonly #reader = randomUUID();
  /** Absent until it is known where the output begins. */
  #position: ExecPosition | undefined;
  #confirms = true;
  #wasTold = false;
  #confirmedBytes = 0;

  /** What the server is told when a stream is opened, in the form of a query. */
  get attachment(): string {
    return `reader=${this.#reader}${this.#confirms ? '&confirms=1' : ''}${this.#counts()}`;
  }

  /**
   * A stream has been opened: `position` is what its server says of where it begins. An old server says
   * nothing, and a proxy on the way may take the header out: then it is at zero when the session is
   * `fresh`, and where we stand when we said so. Otherwise it cannot be known, and false comes back: the
   * stream is to be opened again, as one that confirms nothing, or the server would wait for ever.
   */
  begin(position: string | undefined, fresh: boolean): boolean {
    if (position === undefined) {
      if (fresh) this.#position ??= { stdout: 0, stderr: 0, pty: 0, dropped: 0 };
      this.#confirmedBytes = this.#bytes();
      if (this.#position || !this.#confirms) return true;
      this.#confirms = false;
      return false;
    }
    this.#wasTold = true;
    const query = new URLSearchParams(position);
    const count = (name: string) => Number(query.get(name) ?? 0);
    this.#position = {
      stdout: count('stdout'),
      stderr: count('stderr'),
      pty: count('pty'),
      dropped: count('dropped'),
    };
    this.#confirmedBytes = this.#bytes();
    return true;
  }

  /** True once a server has said where its output begins: it knows confirmations. */
  get wasTold(): boolean {
    return this.#wasTold;
  }

  /** So many bytes came in. */
  add(kind: 'stdout' | 'stderr' | 'pty', bytes: number): void {
    if (this.#position) this.#position[kind] += bytes;
  }

  /** True when the server waits, or soon will, to hear what came in. */
  get mustConfirm(): boolean {
    return this.#confirms && this.#bytes() - this.#confirmedBytes >= confirmEachBytes;
  }

  /** The confirmation, in the form of a query. It counts as given. */
  confirmation(): string {
    this.#confirmedBytes = this.#bytes();
    return `reader=${this.#reader}${this.#counts()}`;
  }

  #bytes(): number {
    const position = this.#position;
    return position ? position.stdout + position.stderr + position.pty : 0;
  }

  #counts(): string {
    const position = this.#position;
    return position ? fields.map((name) => `&${name}=${position[name]}`).join('') : '';
  }
}
