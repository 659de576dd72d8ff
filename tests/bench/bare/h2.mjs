// Host side of the bare HTTP/2 channel: Node's http2 on a machine's data socket. Used by exec and transfer.
import http2 from 'node:http2';
import { connectPort } from './machine.mjs';

const window = 1 << 20;

/** An HTTP/2 session with the h2 agent of a machine. */
export async function connectH2(machine) {
  const socket = await connectPort(machine, 'data');
  const session = http2.connect('http://guest', {
    createConnection: () => socket,
    settings: { initialWindowSize: window, maxFrameSize: 32759, enablePush: false },
  });
  session.on('error', () => {});
  await new Promise((resolve, reject) => {
    session.once('connect', resolve);
    session.once('close', () => reject(new Error(`${machine.name} closed its HTTP/2 connection`)));
  });
  session.setLocalWindowSize(4 * window);
  return session;
}

/** One call; answers headers and the body, or only its length with `discard`. */
export async function call(session, method, path, { body, discard = false } = {}) {
  const stream = session.request({ ':method': method, ':path': path }, { endStream: body === undefined });
  const headers = new Promise((resolve, reject) => {
    stream.once('response', resolve);
    stream.once('error', reject);
    stream.setTimeout(120_000, () => stream.close(http2.constants.NGHTTP2_CANCEL));
  });
  if (typeof body === 'string') stream.end(body);
  else if (body !== undefined) body(stream);
  const head = await headers;
  const chunks = [];
  let length = 0;
  for await (const chunk of stream) {
    length += chunk.length;
    if (!discard) chunks.push(chunk);
  }
  return { exit: Number(head.exit), length, text: Buffer.concat(chunks).toString() };
}

/** Writes this many zero bytes into a stream as fast as it takes them. */
export function writeZeros(bytes) {
  const chunk = Buffer.alloc(256 * 1024);
  return (stream) => {
    let left = bytes;
    const go = () => {
      while (left > 0) {
        const part = left >= chunk.length ? chunk : chunk.subarray(0, left);
        left -= part.length;
        if (!stream.write(part)) return stream.once('drain', go);
      }
      stream.end();
    };
    go();
  };
}
