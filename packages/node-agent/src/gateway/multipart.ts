/** The one file of a multipart upload, as a stream: nothing is collected. */
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { Busboy } from '@fastify/busboy';
import { GatewayError } from './failures.js';

/**
 * Hands the part named `file` to `consume` and resolves with its result once the request has ended.
 * @throws GatewayError 422 when there is no such part; whatever `consume` throws
 */
export function readUploadedFile<T>(
  request: IncomingMessage,
  consume: (file: Readable) => Promise<T>,
): Promise<T> {
  const contentType = request.headers['content-type'] ?? '';
  if (!contentType.startsWith('multipart/form-data')) {
    throw new GatewayError(
      422,
      'bad_request',
      'An upload must be multipart/form-data with one part named "file".',
    );
  }
  return new Promise<T>((resolve, reject) => {
    let consumed: Promise<T> | undefined;
    const parser = new Busboy({
      headers: { ...request.headers, 'content-type': contentType },
      limits: { files: 1, fields: 16, fieldSize: 64 * 1024, fileSize: Infinity },
    });
    const fail = (error: unknown) => {
      request.unpipe(parser);
      request.resume();
      reject(error);
    };
    parser.on('file', (name: string, file: Readable) => {
      if (name !== 'file' || consumed) {
        file.resume();
        return;
      }
      consumed = consume(file);
      consumed.catch((error: unknown) => {
        file.resume();
        fail(error);
      });
    });
    parser.on('error', (cause: unknown) =>
      fail(new GatewayError(400, 'bad_request', 'The multipart body is broken.', { cause })),
    );
    parser.on('finish', () => {
      if (consumed) consumed.then(resolve, reject);
      else fail(new GatewayError(422, 'bad_request', 'file: the multipart body has no part of this name.'));
    });
    // A client that goes away in the middle: nothing of the file may be taken for the whole.
    request.once('aborted', () => parser.destroy(new Error('the client went away')));
    request.pipe(parser);
  });
}
