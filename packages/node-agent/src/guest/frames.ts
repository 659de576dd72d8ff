/** Framing of exec streams: `[kind u8][length u32 big-endian][payload]`. See protocol's `guest-api.ts`. */
import { execFrameMaxBytes } from '@sandlot/protocol';

/** One frame. */
export interface Frame {
  kind: number;
  payload: Buffer;
}

const headerBytes = 5;
/** JSON frames may be larger than output frames; beyond this the peer is broken. */
const payloadLimitBytes = 16 * execFrameMaxBytes;

/** The bytes of one frame. */
export function encodeFrame(kind: number, payload: Uint8Array | string): Buffer {
  const body = typeof payload === 'string' ? Buffer.from(payload) : payload;
  const frame = Buffer.allocUnsafe(headerBytes + body.length);
  frame.writeUInt8(kind, 0);
  frame.writeUInt32BE(body.length, 1);
  frame.set(body, headerBytes);
  return frame;
}

/** Cuts a byte stream into frames, however it is chunked. */
export class FrameReader {
  #kept: Buffer = Buffer.alloc(0);

  /**
   * Frames that are complete with this chunk.
   * @throws Error when a length is beyond any frame that the guest sends
   */
  push(chunk: Buffer): Frame[] {
    let bytes = this.#kept.length > 0 ? Buffer.concat([this.#kept, chunk]) : chunk;
    const frames: Frame[] = [];
    while (bytes.length >= headerBytes) {
      const length = bytes.readUInt32BE(1);
      if (length > payloadLimitBytes) throw new Error(`the guest sent a frame of ${length} bytes`);
      if (bytes.length < headerBytes + length) break;
      frames.push({ kind: bytes.readUInt8(0), payload: bytes.subarray(headerBytes, headerBytes + length) });
      bytes = bytes.subarray(headerBytes + length);
    }
    this.#kept = bytes;
    return frames;
  }

  /** Bytes of a frame that is not complete yet. */
  get pendingBytes(): number {
    return this.#kept.length;
  }
}
