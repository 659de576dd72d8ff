/**
 * A registry for tests, in this process: serves OCI layout folders read-only over plain HTTP on loopback, with
 * Range, basic or bearer authentication, and faults of the test's choice. For e2e tests of other packages as well.
 */
import { randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { isDigest } from '../manifest/reference.js';

/** What goes wrong with one request. */
export type RegistryFault =
  | { kind: 'status'; status: number; headers?: Record<string, string>; body?: string }
  | { kind: 'reset' }
  /** Sends so many bytes of the body and closes the connection. */
  | { kind: 'cut'; afterBytes: number }
  /** Answers nothing until the registry is closed. */
  | { kind: 'hang' }
  /** Sends these bytes instead of the content. */
  | { kind: 'replace'; content: Buffer };

/** Options of {@link TestRegistry.start}. */
export interface TestRegistryOptions {
  /** Repository name to layout folder. */
  repositories: Record<string, string>;
  auth?: { kind: 'basic' | 'bearer'; username: string; password: string; isAnonymousAllowed?: boolean };
  /** Asked for every request; `count` is how often this path was asked for, from 1. */
  fault?: (path: string, count: number) => RegistryFault | undefined;
  /** Pretends not to know Range. */
  ignoresRange?: boolean;
  /** Blobs are answered by a redirect to this origin, where another test registry serves them. */
  redirectBlobsTo?: () => string;
  /** Address to listen on; loopback if left out. */
  address?: string;
}

/** A request that came, for tests to look at. */
export interface SeenRequest {
  path: string;
  range: string | undefined;
  authorization: string | undefined;
}

interface LayoutManifest {
  digest: string;
  mediaType: string;
  annotations?: Record<string, string>;
}

/** See the file's head. */
export class TestRegistry {
  readonly requests: SeenRequest[] = [];
  private readonly counts = new Map<string, number>();
  private readonly token = randomBytes(12).toString('hex');
  private server: Server | undefined;

  private constructor(private readonly options: TestRegistryOptions) {}

  /** Starts it on a free port. */
  static async start(options: TestRegistryOptions): Promise<TestRegistry> {
    const registry = new TestRegistry(options);
    const server = createServer((request, response) => {
      registry.handle(request, response).catch(() => response.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, options.address ?? '127.0.0.1', resolve));
    registry.server = server;
    return registry;
  }

  /** `127.0.0.1:port`, the first part of references to its images. */
  get host(): string {
    const { address, port } = this.server!.address() as AddressInfo;
    return `${address}:${port}`;
  }

  /** Requests for paths that contain this text. */
  seen(text: string): SeenRequest[] {
    return this.requests.filter(({ path }) => path.includes(text));
  }

  /** Ends it, open connections included. */
  async close(): Promise<void> {
    if (!this.server?.listening) return;
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server!.close(resolve));
  }

  private async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = decodeURIComponent(new URL(request.url!, 'http://x').pathname);
    const { range, authorization } = request.headers;
    this.requests.push({ path, range, authorization });
    const count = (this.counts.get(path) ?? 0) + 1;
    this.counts.set(path, count);
    const fault = this.options.fault?.(path, count);
    if (fault?.kind === 'reset') request.socket.destroy();
    if (fault?.kind === 'reset' || fault?.kind === 'hang') return;
    if (fault?.kind === 'status') {
      response.writeHead(fault.status, fault.headers).end(fault.body ?? '');
      return;
    }
    if (path === '/token') this.answerToken(request, response);
    else if (!this.isAllowed(authorization)) this.challenge(response);
    else if (path === '/v2/') response.writeHead(200).end('{}');
    else await this.answerContent(path, request, response, fault);
  }

  private async answerContent(
    path: string,
    request: IncomingMessage,
    response: ServerResponse,
    fault: RegistryFault | undefined,
  ): Promise<void> {
    const match = /^\/v2\/(.+)\/(manifests|blobs)\/([^/]+)$/.exec(path);
    const folder = match && this.options.repositories[match[1]!];
    if (!folder) return notFound(response, 'NAME_UNKNOWN', 'repository name not known to registry');
    const kind = match[2]!;
    if (kind === 'blobs' && this.options.redirectBlobsTo) {
      response.writeHead(307, { location: `${this.options.redirectBlobsTo()}${path}` }).end();
      return;
    }
    const digest = isDigest(match[3]!) ? match[3]! : await findTag(folder, match[3]!);
    const file = digest && join(folder, 'blobs', digest.replace(':', '/'));
    const size = file ? (await stat(file).catch(() => undefined))?.size : undefined;
    if (!file || size === undefined) return notFound(response, 'MANIFEST_UNKNOWN', 'manifest unknown');
    const headers: Record<string, string> = {
      'content-type': kind === 'manifests' ? await mediaTypeOf(file) : 'application/octet-stream',
      'docker-content-digest': digest,
    };
    if (fault?.kind === 'replace') {
      response.writeHead(200, { ...headers, 'content-length': fault.content.length }).end(fault.content);
      return;
    }
    const start = this.options.ignoresRange
      ? 0
      : Number(/^bytes=([0-9]+)-/.exec(request.headers.range ?? '')?.[1] ?? 0);
    headers['content-length'] = `${size - start}`;
    if (start > 0) headers['content-range'] = `bytes ${start}-${size - 1}/${size}`;
    response.writeHead(start > 0 ? 206 : 200, headers);
    if (request.method === 'HEAD') response.end();
    else await sendFile(file, start, response, fault?.kind === 'cut' ? fault.afterBytes : undefined);
  }

  private isAllowed(authorization: string | undefined): boolean {
    const { auth } = this.options;
    if (!auth) return true;
    return authorization === (auth.kind === 'basic' ? basicOf(auth) : `Bearer ${this.token}`);
  }

  private challenge(response: ServerResponse): void {
    const isBasic = this.options.auth!.kind === 'basic';
    const header = isBasic
      ? 'Basic realm="test"'
      : `Bearer realm="http://${this.host}/token",service="test",scope="repository:x:pull"`;
    const body = '{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}';
    response.writeHead(401, { 'www-authenticate': header }).end(body);
  }

  private answerToken(request: IncomingMessage, response: ServerResponse): void {
    const auth = this.options.auth!;
    const given = request.headers.authorization;
    const isWelcome = given === undefined ? auth.isAnonymousAllowed === true : given === basicOf(auth);
    if (isWelcome) response.writeHead(200).end(JSON.stringify({ token: this.token, expires_in: 300 }));
    else response.writeHead(401).end('{"details":"incorrect username or password"}');
  }
}

function basicOf(auth: { username: string; password: string }): string {
  return `Basic ${Buffer.from(`${auth.username}:${auth.password}`).toString('base64')}`;
}

function notFound(response: ServerResponse, code: string, message: string): void {
  response.writeHead(404).end(JSON.stringify({ errors: [{ code, message }] }));
}

async function findTag(folder: string, tag: string): Promise<string | undefined> {
  const index = JSON.parse(await readFile(join(folder, 'index.json'), 'utf8')) as {
    manifests: LayoutManifest[];
  };
  return index.manifests.find(({ annotations }) => annotations?.['org.opencontainers.image.ref.name'] === tag)
    ?.digest;
}

async function mediaTypeOf(file: string): Promise<string> {
  const bytes = await readFile(file);
  const { mediaType } = JSON.parse(bytes.toString()) as { mediaType?: string };
  return mediaType ?? 'application/octet-stream';
}

async function sendFile(
  file: string,
  start: number,
  response: ServerResponse,
  cutAfter: number | undefined,
): Promise<void> {
  let sent = 0;
  for await (const chunk of createReadStream(file, {
    start,
    highWaterMark: 1 << 20,
  }) as AsyncIterable<Buffer>) {
    const part = cutAfter === undefined ? chunk : chunk.subarray(0, Math.max(0, cutAfter - sent));
    sent += part.length;
    if (!response.write(part)) await drained(response);
    if (response.destroyed) return;
    if (cutAfter !== undefined && sent >= cutAfter) {
      // What was written must arrive before the connection ends.
      await new Promise((resolve) => setTimeout(resolve, 20));
      response.destroy();
      return;
    }
  }
  response.end();
}

/** Waits until more can be written, or the other side has gone. */
function drained(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      response.off('drain', done);
      response.off('close', done);
      resolve();
    };
    response.on('drain', done);
    response.on('close', done);
  });
}
