/** The body of an upload: one multipart part `file`, streamed, its length known whenever the file's is. */
import { randomUUID } from 'node:crypto';

/** A multipart body that can be made again for a repeat. */
export interface MultipartBody {
  contentType: string;
  contentLength: number | undefined;
  open(): AsyncIterable<Uint8Array>;
}

/** Wraps `open`'s bytes as the part `file`. */
export function multipartFile(
  fileName: string,
  length: number | undefined,
  open: () => AsyncIterable<Uint8Array>,
): MultipartBody {
  const boundary = `sandlot-${randomUUID()}`;
  const name = fileName.replace(/["\r\n\\]/g, '_');
  const head = new TextEncoder().encode(
    `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\n` +
      'Content-Type: application/octet-stream\r\n\r\n',
  );
  const tail = new TextEncoder().encode(`\r\n--${boundary}--\r\n`);
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    contentLength: length === undefined ? undefined : head.byteLength + length + tail.byteLength,
    async *open() {
      yield head;
      yield* open();
      yield tail;
    },
  };
}
