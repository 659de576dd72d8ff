/**
 * Keeps a multi-byte character in one piece: older clients decode each data event by itself.
 * Bytes that are not UTF-8 pass unchanged.
 */
export class Utf8Boundary {
  #kept: Buffer = Buffer.alloc(0);

  /** What can be sent now: all but an unfinished character at the end. */
  push(data: Buffer): Buffer {
    const bytes = this.#kept.length > 0 ? Buffer.concat([this.#kept, data]) : data;
    const whole = bytes.length - unfinishedTail(bytes);
    this.#kept = bytes.subarray(whole);
    return bytes.subarray(0, whole);
  }

  /** The rest, when nothing more comes. */
  flush(): Buffer {
    const rest = this.#kept;
    this.#kept = Buffer.alloc(0);
    return rest;
  }
}

/** Bytes at the end that begin a character and do not finish it: 0 to 3 (RFC 3629, section 3). */
function unfinishedTail(bytes: Buffer): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back]!;
    if ((byte & 0xc0) === 0x80) continue;
    const needed = byte >= 0xf0 && byte <= 0xf4 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1;
    return byte < 0xf5 && needed > back ? back : 0;
  }
  return 0;
}
