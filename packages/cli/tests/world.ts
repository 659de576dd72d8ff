/** One invocation of the command line with streams of its own, against a server of the test. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { PassThrough, Readable, Writable } from 'node:stream';
import { afterEach, beforeEach, expect } from 'vitest';
import { runCli } from '../src/cli.js';
import { type CliContext, makeContext } from '../src/context.js';
import { FakeApi } from './fake-api.js';

/** What an invocation gave. */
export interface Outcome {
  code: number;
  stdout: string;
  stderr: string;
}

/** A home folder and an environment for invocations. */
export class World {
  readonly home = mkdtempSync(path.join(tmpdir(), 'sandlot-cli-'));
  readonly env: Record<string, string | undefined> = { SANDLOT_DATA: path.join(this.home, 'data') };
  readonly #listeners = new Map<string, Set<() => void>>();
  isRoot = false;

  /** Runs `sandlot ARGS`. */
  async run(args: string[], input: { stdin?: string | Readable; tty?: boolean } = {}): Promise<Outcome> {
    const out = new Collector();
    const err = new Collector();
    const stdin =
      input.stdin instanceof Readable
        ? input.stdin
        : Readable.from(input.stdin === undefined ? [] : [Buffer.from(input.stdin)]);
    if (input.tty) Object.assign(stdin, { isTTY: true, setRawMode: () => stdin });
    const context = makeContext({
      env: this.env,
      stdin,
      stdout: Object.assign(out, input.tty ? { columns: 120, rows: 40 } : {}),
      stderr: err,
      homeFolder: this.home,
      isRoot: this.isRoot,
      onSignal: (name, listener) => {
        const listeners = this.#listeners.get(name) ?? new Set();
        this.#listeners.set(name, listeners.add(listener));
        return () => listeners.delete(listener);
      },
    } as Omit<CliContext, 'out' | 'settings' | 'client'>);
    const code = await runCli(args, context);
    return { code, stdout: out.text(), stderr: err.text() };
  }

  /** Sends a signal to the invocation that runs. */
  signal(name: NodeJS.Signals): void {
    for (const listener of this.#listeners.get(name) ?? []) listener();
  }

  /** How many listeners an invocation has left behind. */
  leftListeners(): number {
    return [...this.#listeners.values()].reduce((count, listeners) => count + listeners.size, 0);
  }

  remove(): void {
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** Gives every test of a file a world whose commands use a fake API. Both end with the test, which must leave no listener. */
export function openForEachTest(take: (made: { world: World; api: FakeApi }) => void): void {
  let world: World;
  let api: FakeApi;
  beforeEach(async () => {
    api = await FakeApi.open();
    world = new World();
    world.env['SANDLOT_URL'] = api.url;
    world.env['SANDLOT_API_KEY'] = 'k';
    take({ world, api });
  });
  afterEach(async () => {
    await api.close();
    world.remove();
    expect(world.leftListeners()).toBe(0);
  });
}

/** A stream of input that a test feeds by hand. */
export function openInput(): PassThrough {
  return new PassThrough();
}

class Collector extends Writable {
  readonly #chunks: Buffer[] = [];

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#chunks.push(Buffer.from(chunk));
    done();
  }

  text(): string {
    return Buffer.concat(this.#chunks).toString();
  }
}
