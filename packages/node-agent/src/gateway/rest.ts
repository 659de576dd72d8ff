/** The gateway's REST routes: exec, upload, download, read-file as Prime's clients call them; tar, stat and received are ours. */
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type GatewayExecRequest, type GatewayExecResponse, readFileMaxBytes } from '@sandlot/protocol';
import { collect } from '../guest/collect.js';
import { parseAttachment } from './attachment.js';
import { GatewayError } from './failures.js';
import type { GatewayCall } from './gateway-call.js';
import { readUploadedFile } from './multipart.js';
import { requireGuest } from './require-guest.js';

/** Handlers by method and route. Each answers or throws. */
export const restRoutes: ReadonlyMap<string, (call: GatewayCall) => Promise<void>> = new Map([
  ['POST exec', exec],
  ['POST upload', upload],
  ['GET download', download],
  ['GET read-file', readFile],
  ['GET tar', readTar],
  ['PUT tar', writeTar],
  ['GET stat', stat],
  ['POST received', confirmReceived],
]);

/** What an agent's token reaches: the rest acts outside of its view. */
export const confinedRoutes: ReadonlySet<string> = new Set(['POST exec', 'POST received']);

const defaultExecTimeoutS = 300;
/** A body with a command and an environment. */
const execRequestLimitBytes = 8 * 1024 * 1024;
/** Output that one answer can hold; more is for the streaming service. */
const execOutputLimitBytes = 64 * 1024 * 1024;

async function exec({ access, request, response, signal }: GatewayCall): Promise<void> {
  const body = parseExec((await collectLimited(request, execRequestLimitBytes)).toString('utf8'));
  const timeoutS = body.timeout ?? defaultExecTimeoutS;
  const stream = await access.exec(
    {
      argv: ['/bin/bash', '-c', body.command],
      shellFallback: true,
      timeoutMs: Math.round(timeoutS * 1000),
      ...(body.working_dir ? { cwd: body.working_dir } : {}),
      ...(body.env ? { env: body.env } : {}),
      ...(body.user ? { user: body.user } : {}),
    },
    body.view,
    signal,
  );
  const output = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  let size = 0;
  for await (const event of stream.events()) {
    if (event.kind === 'stdout' || event.kind === 'stderr') {
      size += event.data.length;
      if (size > execOutputLimitBytes) {
        throw new GatewayError(
          413,
          'output_too_large',
          `The command printed more than ${execOutputLimitBytes} bytes and was ended. Redirect its output to a file and download that, or use the streaming exec.`,
        );
      }
      // A frame's bytes belong to a larger chunk; a copy lets that go.
      output[event.kind].push(Buffer.from(event.data));
    } else if (event.kind === 'end') {
      if (event.end.timedOut) {
        throw new GatewayError(
          408,
          'timeout',
          `The command did not end within ${timeoutS} s and was ended with all its processes.`,
        );
      }
      const answer: GatewayExecResponse = {
        stdout: Buffer.concat(output.stdout).toString('utf8'),
        stderr: Buffer.concat(output.stderr).toString('utf8'),
        exit_code: event.end.exitCode,
      };
      sendJson(response, answer);
    }
  }
}

function parseExec(text: string): GatewayExecRequest {
  let body: GatewayExecRequest;
  try {
    body = JSON.parse(text) as GatewayExecRequest;
  } catch (cause) {
    throw new GatewayError(400, 'bad_request', 'The body of an exec must be JSON with a "command".', {
      cause,
    });
  }
  if (typeof body?.command !== 'string' || body.command === '') {
    throw new GatewayError(422, 'bad_request', 'command: must be a non-empty string.');
  }
  if (body.timeout !== undefined && !(typeof body.timeout === 'number' && body.timeout > 0)) {
    throw new GatewayError(422, 'bad_request', 'timeout: must be a number of seconds above 0.');
  }
  return body;
}

async function upload({ sandbox, request, response, query, signal }: GatewayCall): Promise<void> {
  const path = requirePath(query);
  const guest = requireGuest(sandbox);
  const written = await readUploadedFile(request, (file) => guest.writeFile(path, file, { signal }));
  sendJson(response, { success: true, path, size: written.bytes, timestamp: new Date().toISOString() });
}

async function download({ sandbox, response, query, signal }: GatewayCall): Promise<void> {
  const file = await requireGuest(sandbox).readFile(requirePath(query), {}, signal);
  // Files of /proc say that they have no bytes; a length of 0 would cut them off.
  const length = file.size > 0 ? { 'content-length': file.size } : {};
  response.writeHead(200, { 'content-type': 'application/octet-stream', ...length });
  await pipeline(file.body, response);
}

async function readFile({ sandbox, response, query, signal }: GatewayCall): Promise<void> {
  const path = requirePath(query);
  const offset = optionalInteger(query, 'offset');
  const length = optionalInteger(query, 'length');
  const windowed = offset !== undefined || length !== undefined;
  if (length !== undefined && (length < 0 || length > readFileMaxBytes)) {
    throw new GatewayError(422, 'bad_request', `length: must be between 0 and ${readFileMaxBytes}.`);
  }
  // One byte more than fits tells a file that is too large from one that just fits, whatever its stated size (/proc says 0).
  const file = await requireGuest(sandbox).readFile(
    path,
    { ...(offset !== undefined ? { offset } : {}), length: length ?? readFileMaxBytes + 1 },
    signal,
  );
  const content = await collectLimited(file.body, readFileMaxBytes + 1);
  if (content.length > readFileMaxBytes) {
    throw new GatewayError(
      413,
      `File size (${file.size} bytes) exceeds max read size (${readFileMaxBytes} bytes). Use /download instead.`,
      'The file is too large to be read in one answer: read a window of it (offset, length), or use download.',
    );
  }
  const base = { content: content.toString('utf8'), size: content.length };
  if (!windowed) sendJson(response, base);
  else {
    const truncated = file.offset + content.length < file.size || file.offset > 0;
    sendJson(response, { ...base, total_size: file.size, offset: file.offset, truncated });
  }
}

async function readTar({ sandbox, response, query, signal }: GatewayCall): Promise<void> {
  const tar = await requireGuest(sandbox).readTar(requirePath(query), signal);
  response.writeHead(200, { 'content-type': 'application/x-tar' });
  await pipeline(tar, response);
}

async function writeTar({ sandbox, request, response, query, signal }: GatewayCall): Promise<void> {
  const path = requirePath(query);
  const written = await requireGuest(sandbox).writeTar(path, request, signal);
  sendJson(response, { success: true, path, size: written.bytes, timestamp: new Date().toISOString() });
}

async function stat({ sandbox, response, query }: GatewayCall): Promise<void> {
  sendJson(response, await requireGuest(sandbox).stat(requirePath(query)));
}

async function confirmReceived({ sandbox, access, request, response, query }: GatewayCall): Promise<void> {
  request.resume();
  const session = query.get('session');
  if (!session) throw new GatewayError(422, 'bad_request', 'session: is missing.');
  await requireGuest(sandbox).confirmReceived(
    await access.requireExec(session),
    parseAttachment(query.toString()),
  );
  sendJson(response, {});
}

function requirePath(query: URLSearchParams): string {
  const path = query.get('path');
  if (!path) throw new GatewayError(422, 'bad_request', 'path: is missing.');
  if (path.includes('\0')) throw new GatewayError(422, 'bad_request', 'path: must not contain a NUL.');
  return path;
}

function optionalInteger(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name);
  if (text === null) return undefined;
  const value = Number(text);
  if (text.trim() === '' || !Number.isSafeInteger(value)) {
    throw new GatewayError(422, 'bad_request', `${name}: must be a whole number, got "${text}".`);
  }
  return value;
}

async function collectLimited(stream: Readable, limitBytes: number): Promise<Buffer> {
  return collect(
    stream,
    limitBytes,
    () => new GatewayError(413, 'too_large', `More than ${limitBytes} bytes were sent.`),
  );
}

function sendJson(response: GatewayCall['response'], body: unknown): void {
  const text = JSON.stringify(body);
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
  response.end(text);
}
