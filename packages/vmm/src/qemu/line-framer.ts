/** Cuts a byte stream into lines. QMP puts one JSON value on each; used by the QMP client. */

/** Splits chunks at newlines and keeps what is incomplete for the next chunk. */
export class LineFramer {
  #parts: Buffer[] = [];
  #length = 0;

  /** @param maxLineBytes A longer line is an error: {@link push} throws. */
  constructor(readonly maxLineBytes: number) {}

  /** The lines completed by this chunk, without their ends (`\n` or `\r\n`). */
  push(chunk: Buffer): string[] {
    const lines: string[] = [];
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      this.#keep(chunk.subarray(start, end));
      const line = this.#parts.length === 1 ? this.#parts[0]! : Buffer.concat(this.#parts);
      lines.push(line.toString('utf8', 0, line.at(-1) === 13 ? line.length - 1 : line.length));
      this.#parts = [];
      this.#length = 0;
      start = end + 1;
    }
    if (start < chunk.length) this.#keep(chunk.subarray(start));
    return lines;
  }

  #keep(part: Buffer): void {
    this.#length += part.length;
    if (this.#length > this.maxLineBytes) {
      throw new Error(`a line is longer than ${this.maxLineBytes} bytes`);
    }
    this.#parts.push(part);
  }
}
