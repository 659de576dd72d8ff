/**
 * Which execs of a sandbox act in its default view: what an agent's token may see, feed and signal. The guest says of
 * an exec whether it is in some view (`ExecInfo.view`); which one, the node agent knows, as every exec passes it.
 * Owned by `Sandbox`.
 *
 * A session outlives us: those that were started with another view are in the sandbox's record before they start. An exec
 * without session ends with its stream, so those in the default view are known by the streams that we hold.
 */
import type { ExecInfo } from '@sandlot/protocol';
import type { ExecEvent, ExecStream } from '../guest/exec-stream.js';

/** Ids kept before those that the guest does not know any more are dropped; it keeps 1,000 ended sessions. */
const maxElsewhere = 2_000;

/** The execs of one sandbox. */
export class ExecViews {
  /** Without session, in the default view; each as often as it streams. */
  readonly #streaming = new Set<string>();
  /** Sessions in another view. */
  readonly #elsewhere: Set<string>;
  /** Sessions that are being started outside of the default view, each as often as it is. */
  readonly #startingOutside = new Map<string, number>();
  #outsideStarts = 0;

  /**
   * @param elsewhere what the record names
   * @param save writes them into the record
   * @param listExecs what the guest knows
   */
  constructor(
    elsewhere: readonly string[],
    private readonly save: (elsewhere: string[]) => Promise<void>,
    private readonly listExecs: () => Promise<{ sessions: ExecInfo[] }>,
  ) {
    this.#elsewhere = new Set(elsewhere);
  }

  /** Whether an exec acts in the default view. In doubt it does not. */
  isInside(info: ExecInfo): boolean {
    if (info.view !== true) return false;
    return info.session ? !this.#elsewhere.has(info.id) : this.#streaming.has(info.id);
  }

  /** Whether a session of this name, that the guest does not know yet, is on its way to the guest from outside of the view. */
  startsOutside(sessionId: string): boolean {
    return this.#startingOutside.has(sessionId);
  }

  /** Rises with each session that is started outside of the view: who decides by a list of the guest's decides by one that no start has overtaken. */
  get outsideStarts(): number {
    return this.#outsideStarts;
  }

  /** An exec in the default view without session: known as long as it streams. */
  follow(stream: ExecStream): Pick<ExecStream, 'events' | 'cancel'> {
    const streaming = this.#streaming;
    return {
      cancel: () => stream.cancel(),
      async *events(): AsyncGenerator<ExecEvent> {
        let id: string | undefined;
        try {
          for await (const event of stream.events()) {
            if (event.kind === 'start') {
              id = event.started.id;
              streaming.add(id);
            }
            yield event;
          }
        } finally {
          if (id !== undefined) streaming.delete(id);
        }
      },
    };
  }

  /**
   * Starts a session outside of the default view.
   * @param inAnother in another view, which the guest does not tell from the default one
   */
  async startOutside<T>(sessionId: string, inAnother: boolean, open: () => Promise<T>): Promise<T> {
    this.#outsideStarts++;
    this.#startingOutside.set(sessionId, (this.#startingOutside.get(sessionId) ?? 0) + 1);
    try {
      if (inAnother && !this.#elsewhere.has(sessionId)) await this.#remember(sessionId);
      return await open();
    } finally {
      const left = (this.#startingOutside.get(sessionId) ?? 1) - 1;
      if (left > 0) this.#startingOutside.set(sessionId, left);
      else this.#startingOutside.delete(sessionId);
    }
  }

  /** These ran in another view in a memory that is restored. One that is not there any more does no harm. */
  async recall(elsewhere: readonly string[]): Promise<void> {
    for (const id of elsewhere) this.#elsewhere.add(id);
    await this.save([...this.#elsewhere]);
  }

  async #remember(sessionId: string): Promise<void> {
    if (this.#elsewhere.size >= maxElsewhere) {
      const known = new Set((await this.listExecs()).sessions.map((info) => info.id));
      for (const id of this.#elsewhere)
        if (!known.has(id) && !this.#startingOutside.has(id)) this.#elsewhere.delete(id);
    }
    this.#elsewhere.add(sessionId);
    await this.save([...this.#elsewhere]);
  }
}
