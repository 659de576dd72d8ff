/**
 * Reads file contents out of uncompressed layers. Small files that lie side by side, as they mostly do, come out
 * of one read. Called by the emitter only.
 */
import type { FileHandle } from 'node:fs/promises';
import { ImageError } from '../store.js';

const WINDOW = 256 * 1024;
/** Windows that are kept; an image of many layers interleaves only a few at a time. */
const MAX_WINDOWS = 16;

interface Window {
  buffer: Buffer;
  start: number;
  length: number;
}

/** Windows onto the layers of one image. */
export class ContentReader {
  private readonly windows = new Map<number, Window>();

  constructor(private readonly layers: FileHandle[]) {}

  /** Copies `length` bytes of a layer from `position` to `target[offset…]`; they must be there. */
  async copy(layer: number, position: number, length: number, target: Buffer, offset: number): Promise<void> {
    if (length >= WINDOW / 2) {
      await this.readFully(layer, position, length, target, offset);
      return;
    }
    let window = this.windows.get(layer);
    if (!window || position < window.start || position + length > window.start + window.length) {
      window = await this.load(layer, position, length, window);
    }
    const from = position - window.start;
    window.buffer.copy(target, offset, from, from + length);
  }

  private async load(
    layer: number,
    position: number,
    length: number,
    previous: Window | undefined,
  ): Promise<Window> {
    let window = previous;
    if (!window) {
      if (this.windows.size >= MAX_WINDOWS) this.windows.delete(this.windows.keys().next().value!);
      window = { buffer: Buffer.allocUnsafe(WINDOW), start: 0, length: 0 };
    }
    window.length = 0;
    // Moved to the end: the map's order is that of use.
    this.windows.delete(layer);
    this.windows.set(layer, window);
    let filled = 0;
    while (filled < WINDOW) {
      const { bytesRead } = await this.layers[layer]!.read(
        window.buffer,
        filled,
        WINDOW - filled,
        position + filled,
      );
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    if (filled < length) throw vanished(position);
    window.start = position;
    window.length = filled;
    return window;
  }

  private async readFully(
    layer: number,
    position: number,
    length: number,
    target: Buffer,
    offset: number,
  ): Promise<void> {
    let filled = 0;
    while (filled < length) {
      const { bytesRead } = await this.layers[layer]!.read(
        target,
        offset + filled,
        length - filled,
        position + filled,
      );
      if (bytesRead === 0) throw vanished(position + filled);
      filled += bytesRead;
    }
  }
}

function vanished(position: number): ImageError {
  return new ImageError(
    'build-failed',
    `a layer has lost its bytes from ${position} on while it was being read; was the store changed from outside?`,
  );
}
