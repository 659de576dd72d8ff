/** A server of the test with just enough of the API, the gateway and the exec service for the command line. */
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { CommandService } from '../../sdk/tests/command-service.js';

/** A sandbox of the fake. */
export interface FakeSandbox {
  id: string;
  status: string;
  labels: string[];
  [key: string]: unknown;
}

/** The fake. */
export class FakeApi {
  readonly sandboxes: FakeSandbox[] = [];
  readonly creates: Record<string, unknown>[] = [];
  readonly deletes: string[] = [];
  /** Sandboxes that are shown, but have been removed before. */
  readonly removed = new Set<string>();
  readonly commands = new CommandService('/gw/u/s');
  /** Bodies of forks. */
  readonly forks: Record<string, unknown>[] = [];
  /** What forks say of copies that do not run. */
  forkErrors: { index: number; code: string; message: string }[] = [];
  /** Bodies of pulls. */
  readonly pulls: Record<string, unknown>[] = [];
  /** What calls about accounts were authorized with. */
  readonly accountKeys: string[] = [];
  /** What each new sandbox has beside the usual. */
  created: Partial<FakeSandbox> = {};
  logs = 'line one\nline two';
  /** Lines that an import answers. */
  importAnswer: unknown[] = [];
  readonly files = new Map<string, Buffer>();
  /** Answers before the fake does, when it wants to. */
  intercept: (
    method: string,
    path: string,
    body: Buffer,
    query: URLSearchParams,
  ) => { status: number; body: unknown } | undefined = () => undefined;
  url = '';
  readonly #server: http.Server;

  private constructor() {
    this.#server = http.createServer((request, response) => {
      if (request.url?.includes('command_session')) this.commands.handle(request, response);
      else void this.#answer(request, response);
    });
  }

  /** Listens. */
  static async open(): Promise<FakeApi> {
    const api = new FakeApi();
    await new Promise<void>((resolve) => api.#server.listen(0, '127.0.0.1', resolve));
    api.url = `http://127.0.0.1:${(api.#server.address() as AddressInfo).port}`;
    return api;
  }

  /** Adds a running sandbox. */
  add(id: string, more: Partial<FakeSandbox> = {}): void {
    this.sandboxes.push({
      id,
      name: 'n',
      dockerImage: 'python:3.11-slim',
      status: 'RUNNING',
      labels: [],
      cpuCores: 1,
      memoryGB: 2,
      diskSizeGB: 10,
      timeoutMinutes: 60,
      createdAt: new Date().toISOString(),
      environmentVars: {},
      secrets: {},
      timings: { image: 1, restore: 50.4 },
      effective: { vcpus: 1, memoryMiB: 2048, diskGiB: 10 },
      startCommand: null,
      networkAllowlist: null,
      ...more,
    });
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    const url = new URL(request.url ?? '', 'http://fake');
    const method = request.method ?? '';
    const path = url.pathname.replace('/api/v1', '');
    const send = (status: number, value: unknown) => {
      response.writeHead(status, { 'content-type': 'application/json', 'x-request-id': 'req-1' });
      response.end(JSON.stringify(value));
    };
    const early = this.intercept(method, path, body, url.searchParams);
    if (early) return send(early.status, early.body);
    const id = /^\/sandbox\/([^/]+)/.exec(path)?.[1];
    const found = this.sandboxes.find((one) => one.id === id);
    if (path.startsWith('/gw/u/s/'))
      return this.#gateway(method, path.slice(8), url.searchParams, body, response);
    if (path === '/sandbox' && method === 'POST') {
      const wanted = JSON.parse(body.toString()) as Record<string, unknown>;
      this.creates.push(wanted);
      this.add(`new${this.creates.length}`, { labels: wanted['labels'] as string[], ...this.created });
      return send(201, this.sandboxes.at(-1));
    }
    if (path === '/sandbox' && method === 'DELETE') {
      const wanted = JSON.parse(body.toString()) as { sandbox_ids?: string[]; labels?: string[] };
      const chosen = this.sandboxes.filter(
        (one) =>
          wanted.sandbox_ids?.includes(one.id) ??
          wanted.labels?.every((label) => one.labels.includes(label)) ??
          true,
      );
      const succeeded = chosen.map((one) => one.id).filter((one) => !this.removed.has(one));
      this.deletes.push(...succeeded);
      const failed = (wanted.sandbox_ids ?? [])
        .filter((one) => !succeeded.includes(one))
        .map((one) => ({ sandbox_id: one, error: `There is no sandbox ${one} for this key.` }));
      return send(200, { succeeded, failed, message: '' });
    }
    if (path === '/sandbox') {
      const prefix = url.searchParams.get('id_prefix') ?? '';
      const labels = url.searchParams.getAll('labels');
      const isActive = url.searchParams.get('is_active') === 'true';
      const shown = this.sandboxes.filter(
        (one) =>
          one.id.startsWith(prefix) &&
          labels.every((label) => one.labels.includes(label)) &&
          (!isActive || one.status === 'RUNNING'),
      );
      return send(200, { sandboxes: shown, has_next: false });
    }
    if (/^\/(users|keys|teams)$/.test(path)) {
      this.accountKeys.push(request.headers.authorization ?? '');
      return send(200, { data: [], total_count: 0 });
    }
    if (path === '/images/local:pull') {
      const { reference, auth } = JSON.parse(body.toString()) as Record<string, unknown>;
      this.pulls.push({ reference, auth });
      return send(200, { done: { reference, digest: 'sha256:1' } });
    }
    if (path === '/images/local:import') {
      response.writeHead(200, { 'content-type': 'application/x-ndjson' });
      return void response.end(this.importAnswer.map((line) => `${JSON.stringify(line)}\n`).join(''));
    }
    if (path.startsWith('/images/local/')) return send(404, { detail: 'no such image', code: 'NOT_FOUND' });
    if (!found)
      return send(404, { detail: `there is no sandbox ${id}`, code: 'SANDBOX_NOT_FOUND', errors: [] });
    if (path.endsWith('/auth')) {
      const expires_at = new Date(Date.now() + 3_600_000).toISOString();
      return send(200, { token: 't', gateway_url: `${this.url}/gw`, user_ns: 'u', job_id: 's', expires_at });
    }
    const action = /\/(pause|resume|fork)$/.exec(path)?.[1];
    if (action === 'fork') {
      this.forks.push(JSON.parse(body.toString()) as Record<string, unknown>);
      const made = [1, 2].map((number) => ({ ...found, id: `${found.id}-${number}` }));
      return send(201, { sandboxes: made, errors: this.forkErrors });
    }
    if (action !== undefined) {
      found.status = action === 'pause' ? 'PAUSED' : 'RUNNING';
      return send(200, found);
    }
    if (path.endsWith('/logs')) return send(200, { logs: this.logs });
    if (path.endsWith('/error-context'))
      return send(200, { status: found.status, errorType: null, errorMessage: null });
    if (method === 'DELETE') {
      if (this.removed.has(found.id))
        return send(404, {
          detail: `there is no sandbox ${found.id}`,
          code: 'SANDBOX_NOT_FOUND',
          errors: [],
        });
      this.deletes.push(found.id);
      return send(200, { success: true, message: '' });
    }
    send(200, found);
  }

  #gateway(
    method: string,
    route: string,
    query: URLSearchParams,
    body: Buffer,
    response: http.ServerResponse,
  ): void {
    const path = query.get('path') ?? '';
    const json = (status: number, value: unknown) => {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(value));
    };
    const stored = this.files.get(path);
    if (route === 'upload') {
      const start = body.indexOf('\r\n\r\n') + 4;
      const content = body.subarray(start, body.lastIndexOf('\r\n--', body.length - 3));
      this.files.set(path, content);
      json(200, { success: true, path, size: content.length });
    } else if (route === 'tar' && method === 'PUT') {
      this.files.set(path, body);
      json(200, { success: true, path, size: body.length });
    } else if (!stored) json(404, { error: 'ENOENT', detail: `there is no ${path}` });
    else if (route === 'stat') {
      const kind =
        stored.length >= 1024 && stored.subarray(257, 262).toString() === 'ustar' ? 'directory' : 'file';
      json(200, { name: path, kind, size: stored.length, mode: 0o644, uid: 0, gid: 0, mtimeMs: 0 });
    } else {
      response.writeHead(200);
      response.end(stored);
    }
  }
}
