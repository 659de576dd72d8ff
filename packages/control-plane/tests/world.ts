/** A control plane with a fake node in a folder of its own: what the tests of the API are told in. */
import { mkdtempSync, rmSync } from 'node:fs';
import { type IncomingHttpHeaders, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compileSchema, type ErrorBody, type Route, routes, type Sandbox } from '@sandlot/protocol';
import { pino } from 'pino';
import { expect } from 'vitest';
import type { ControlPlaneOptions } from '../src/options.js';
import { type ControlPlane, type StartHooks, startControlPlane } from '../src/start.js';
import { FakeNode } from './fake-node.js';

/** An answer. */
export interface Answer<T = Record<string, unknown>> {
  status: number;
  headers: IncomingHttpHeaders;
  body: T;
}

/** What a call may carry. */
export interface CallOptions {
  body?: unknown;
  key?: string | null;
  headers?: Record<string, string>;
  /** Bytes instead of JSON. */
  raw?: Buffer;
}

/** Everything of one test. */
export class World {
  readonly folder = mkdtempSync(join(tmpdir(), 'sandlot-cp-'));
  readonly node = new FakeNode(join(this.folder, 'node.sock'));
  readonly adminSocket = join(this.folder, 'admin.sock');
  /** Lines of the log, unless LOG sends them to the terminal. */
  readonly logged: string[] = [];
  /** Added to the real time. */
  skewMs = 0;
  key = '';
  #plane: ControlPlane | undefined;
  readonly #options: Partial<ControlPlaneOptions>;

  constructor(options: Partial<ControlPlaneOptions> = {}) {
    this.#options = options;
  }

  /** Both sides up, and in step. */
  async open(): Promise<this> {
    await this.node.start();
    await this.startPlane();
    this.key = await this.makeKey('admin');
    await this.inStep();
    return this;
  }

  async startPlane(hooks: Partial<StartHooks> = {}): Promise<void> {
    const write = (line: string) => void this.logged.push(line);
    const log = process.env['LOG']
      ? pino({ level: process.env['LOG'] })
      : pino({ level: 'debug' }, { write });
    this.#plane = await startControlPlane(
      {
        dataFolder: join(this.folder, 'data'),
        keysFolder: join(this.folder, 'keys'),
        host: '127.0.0.1',
        port: 0,
        nodeSocket: this.node.socketPath,
        adminSocket: this.adminSocket,
        trustedProxies: [],
        ...this.#options,
      },
      { log, now: () => Date.now() + this.skewMs, reconcileIntervalMs: 3_600_000, ...hooks },
    );
  }

  async stopPlane(): Promise<void> {
    await this.#plane?.close();
    this.#plane = undefined;
  }

  async close(): Promise<void> {
    await this.stopPlane();
    await this.node.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  get address(): string {
    if (this.#plane === undefined) throw new Error('the control plane is stopped');
    return this.#plane.address;
  }

  reconcile(): Promise<void> {
    if (this.#plane === undefined) throw new Error('the control plane is stopped');
    return this.#plane.reconcile();
  }

  /** Waits until the node is reachable, as `status` says. */
  async inStep(): Promise<void> {
    await this.eventually(async () => {
      const { body } = await this.admin('GET', '/status');
      return (body['nodes'] as { reachable: boolean }[]).some((node) => node.reachable);
    });
  }

  /** Calls the API. Every error must have the form of the table. */
  async call<T = Record<string, unknown>>(
    method: string,
    path: string,
    options: CallOptions = {},
  ): Promise<Answer<T>> {
    const { key = this.key } = options;
    const answer = await send<T>(`${this.address}/api/v1${path}`, method, { ...options, key });
    if (answer.status >= 400) expect(checkError(answer.body), JSON.stringify(answer.body)).toEqual([]);
    return answer;
  }

  /** Calls by the admin socket, without a key. */
  admin<T = Record<string, unknown>>(method: string, path: string, body?: unknown): Promise<Answer<T>> {
    return send<T>(`/api/v1${path}`, method, { body, key: null }, this.adminSocket);
  }

  /** A key of a user, who is made if need be. */
  async makeKey(user: string): Promise<string> {
    if (user !== 'admin') await this.admin('POST', '/users', { name: user });
    return (await this.admin<{ key: string }>('POST', '/keys', { user, name: 'test' })).body.key;
  }

  /** Creates a sandbox; the answer must fit the schema. */
  async create(body: Record<string, unknown> = {}, options: CallOptions = {}): Promise<Sandbox> {
    const answer = await this.call<Sandbox>('POST', '/sandbox?wait=10', {
      ...options,
      body: { ...simple, ...body },
    });
    expect(answer.status, JSON.stringify(answer.body)).toBe(201);
    expectFits('createSandbox', answer.body);
    return answer.body;
  }

  async get(id: string): Promise<Sandbox> {
    const answer = await this.call<Sandbox>('GET', `/sandbox/${id}`);
    expect(answer.status).toBe(200);
    return answer.body;
  }

  /** Polls a condition; fails after five seconds. */
  async eventually(check: () => Promise<boolean> | boolean): Promise<void> {
    const until = Date.now() + 5_000;
    while (!(await check())) {
      if (Date.now() > until) throw new Error(`never came true: ${check.toString().slice(0, 200)}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}

/** The least a create needs. */
export const simple = { name: 'test', docker_image: 'python:3.11-slim' };

const checkError = compileSchema((await import('@sandlot/protocol')).ErrorBody);

/** The answer fits the schema of its route. */
export function expectFits(operation: keyof typeof routes, body: unknown): void {
  expect(compileSchema((routes[operation] as Route).answer)(body), JSON.stringify(body)).toEqual([]);
}

/** One field is named by an error, which is a 422. */
export function expectField(answer: Answer<unknown>, param: string): void {
  expect(answer.status, JSON.stringify(answer.body)).toBe(422);
  expect((answer.body as ErrorBody).errors.map((issue) => issue.param)).toContain(param);
}

/** One request, without anything that a client library adds. */
export function send<T>(
  url: string,
  method: string,
  options: CallOptions,
  socketPath?: string,
): Promise<Answer<T>> {
  const body =
    options.raw ?? (options.body === undefined ? undefined : Buffer.from(JSON.stringify(options.body)));
  const headers: Record<string, string> = {
    ...(body === undefined
      ? {}
      : { 'content-type': 'application/json', 'content-length': String(body.length) }),
    ...(options.key === null || options.key === undefined ? {} : { authorization: `Bearer ${options.key}` }),
    ...options.headers,
  };
  return new Promise((resolve, reject) => {
    const target = socketPath === undefined ? url : { socketPath, path: url };
    const take = (answer: import('node:http').IncomingMessage) => {
      const chunks: Buffer[] = [];
      answer.on('data', (chunk: Buffer) => chunks.push(chunk));
      answer.on('end', () => {
        const text = Buffer.concat(chunks).toString('utf8');
        resolve({ status: answer.statusCode ?? 0, headers: answer.headers, body: parse(text) as T });
      });
      answer.on('error', reject);
    };
    const sent =
      typeof target === 'string'
        ? request(target, { method, headers, agent: false }, take)
        : request({ ...target, method, headers, agent: false }, take);
    sent.once('error', reject);
    sent.end(body);
  });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
