/** A queue of output between the exec stream and one reader, with a limit that slows the stream down. */

/** Bytes that wait unread before the stream is slowed down. */
const highWaterBytes = 1024 * 1024;

/** One writer, one reader. */
export class ChunkQueue<T> implements AsyncIterable<T> {
  #items: { value: T; bytes: number }[] = [];
  #bytes = 0;
  #ended = false;
  #error: unknown;
  #wakeReader: (() => void) | undefined;
  #wakeWriter: (() => void) | undefined;

  constructor(private readonly onFirstRead: () => void) {}

  /** Adds; resolves once there is room for more. */
  async push(value: T, bytes: number): Promise<void> {
    if (this.#ended) return;
    this.#items.push({ value, bytes });
    this.#bytes += bytes;
    this.#wakeReader?.();
    while (this.#bytes > highWaterBytes && !this.#ended) {
      await new Promise<void>((resolve) => {
        this.#wakeWriter = resolve;
      });
    }
  }

  /** No more will come; with an error, the reader gets it after what waits. */
  end(error?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.#wakeReader?.();
    this.#wakeWriter?.();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    this.onFirstRead();
    try {
      for (;;) {
        const item = this.#items.shift();
        if (item) {
          this.#bytes -= item.bytes;
          if (this.#bytes <= highWaterBytes) this.#wakeWriter?.();
          yield item.value;
        } else if (this.#ended) {
          if (this.#error !== undefined) throw this.#error;
          return;
        } else {
          await new Promise<void>((resolve) => {
            this.#wakeReader = resolve;
          });
        }
      }
    } finally {
      // A reader that leaves early must not hold up the command: what still comes is dropped.
      this.#items = [];
      this.#bytes = 0;
      this.end();
    }
  }
}
