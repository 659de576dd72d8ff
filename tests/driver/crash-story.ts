/**
 * kill -9 of the control plane, the node agent or a machine at a random moment of a create, an exec, a delete, a pause, a resume
 * or a fork on a whole server; `up` again; and a look that nothing is lost and nothing is left. Told by `tests/e2e` in
 * short, by `tests/long` in full.
 */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { namespacesOf, processesWith } from './leftovers.js';
import type { SeededRandom } from './seeded-random.js';
import type { TestServer } from './test-server.js';

/** Who is killed. */
export const victims = ['control plane', 'node agent', 'machine'] as const;
/** In what. */
export const steps = ['create', 'exec', 'delete'] as const;
/** In what of those that save a machine. */
export const copySteps = ['pause', 'resume', 'fork'] as const;
/** One of {@link victims}. */
export type Victim = (typeof victims)[number];
/** One of {@link steps} or {@link copySteps}. */
export type Step = (typeof steps)[number] | (typeof copySteps)[number];

interface Answer {
  id: string;
  status: string;
  errorType: string | null;
}

/** Of a fork: either copies, or why there are none. */
interface ForkAnswer {
  sandboxes?: Answer[];
  detail?: string;
}

/** What a machine has in its memory alone, and how it is looked for. */
const keep = 'echo kept > /dev/shm/kept; echo kept > /root/kept';
const look = 'cat /dev/shm/kept /root/kept';
const copiesOfFork = 2;

/** One sandbox that lives through everything, and the rounds around it. */
export class CrashStory {
  #count = 0;

  private constructor(
    private readonly server: TestServer,
    private readonly image: string,
    private readonly key: string,
    private readonly anchor: string,
    private readonly random: SeededRandom,
  ) {}

  /** Makes the sandbox that must survive. */
  static async begin(server: TestServer, image: string, random: SeededRandom): Promise<CrashStory> {
    const { api_key: key } = await server.json<{ api_key: string }>(['config']);
    const anchor = await server.lastLine(['create', image, '--memory', '0.5', '--disk', '2']);
    await server.mustRun(['run', anchor, '--', '/bin/sh', '-c', 'echo kept > /root/kept']);
    return new CrashStory(server, image, key, anchor, random);
  }

  /** One kill. Throws, with the round's name and the moment, for anything lost or left. */
  async round(victim: Victim, step: Step): Promise<void> {
    const longest = { create: 1_500, exec: 1_200, delete: 250, pause: 900, resume: 900, fork: 1_500 }[step];
    const afterMs = this.random.between(0, longest);
    try {
      if (step === 'create') await this.#inCreate(victim, afterMs);
      else if (step === 'exec') await this.#inExec(victim, afterMs);
      else if (step === 'delete') await this.#inDelete(victim, afterMs);
      else if (step === 'fork') await this.#inFork(victim, afterMs);
      else await this.#inRest(victim, step, afterMs);
      await this.#expectOnlyTheAnchor();
    } catch (cause) {
      const round = `kill of the ${victim} ${afterMs} ms after the begin of a ${step} (seed ${this.random.seed})`;
      throw new Error(`${round}: ${(cause as Error).message}\n${this.server.logs()}`, { cause });
    }
  }

  /** Deletes the sandbox that has survived. */
  async end(): Promise<void> {
    await this.server.mustRun(['rm', this.anchor]);
  }

  async #inCreate(victim: Victim, afterMs: number): Promise<void> {
    const body = { ...this.#request(), idempotency_key: `crash-${this.random.seed}-${this.#count++}` };
    const first = this.server.ask<Answer>('POST', '/sandbox', this.key, body).catch(() => undefined);
    await this.#kill(victim, afterMs);
    const answered = (await first)?.body.id;
    // A client that got no answer asks again with the same key.
    const again = await this.server.ask<Answer>('POST', '/sandbox?wait=60', this.key, body);
    if (answered && again.body.id !== answered)
      throw new Error(`${answered} was lost: asked again, it is ${again.body.id}`);
    const { id, status, errorType } = again.body;
    if (status === 'RUNNING') await this.#expectOutput(id);
    else if (victim !== 'machine' || status !== 'ERROR') throw new Error(`${id} is ${status} ${errorType}`);
    await this.#delete(id);
  }

  async #inExec(victim: Victim, afterMs: number): Promise<void> {
    const id = await this.#create();
    const line = ['run', id, '--', '/bin/sh', '-c', 'sleep 4.75; echo done'];
    const running = this.server.run(line, { timeoutMs: 90_000 });
    running.catch(() => undefined);
    await this.#kill(victim, afterMs, id);
    const { code, stdout } = await running;
    // Whoever is told of a success has all of the output.
    if (code === 0 && stdout !== 'done\n') throw new Error(`the command succeeded and printed "${stdout}"`);
    if (victim === 'machine') {
      if (code === 0) throw new Error('the command of a dead machine succeeded');
      await this.#until(`${id} is reported`, async () => (await this.#get(id)).errorType === 'MACHINE_ENDED');
    } else {
      await this.#expectOutput(id);
      await this.#until('the command’s tree has ended', async () => {
        const count = await this.server.run(['run', id, '--', 'pgrep', '-c', '-f', '[s]leep 4.75']);
        return count.stdout.trim() === '0';
      });
    }
    await this.#delete(id);
  }

  async #inDelete(victim: Victim, afterMs: number): Promise<void> {
    const id = await this.#create();
    const deleting = this.server.ask('DELETE', `/sandbox/${id}`, this.key).catch(() => undefined);
    await this.#kill(victim, afterMs, id);
    const first = await deleting;
    const again = await this.server.ask('DELETE', `/sandbox/${id}`, this.key);
    if (first?.status === 200 && again.status !== 404) throw new Error(`deleted twice: ${again.status}`);
    if (![200, 404].includes(again.status)) throw new Error(`the second delete answers ${again.status}`);
    if ((await this.#get(id)).status === 'RUNNING') throw new Error('deleted, and still RUNNING');
  }

  /** It rests or runs afterwards, and a command finds what was in its memory; only the kill of its machine may have ended it. */
  async #inRest(victim: Victim, step: 'pause' | 'resume', afterMs: number): Promise<void> {
    const id = await this.#create();
    await this.#sh(id, keep);
    if (step === 'resume') await this.server.ask('POST', `/sandbox/${id}/pause`, this.key);
    const asked = this.server.ask<Answer>('POST', `/sandbox/${id}/${step}`, this.key).catch(() => undefined);
    await this.#kill(victim, afterMs, id);
    const { status } = (await asked)?.body ?? {};
    if (victim !== 'machine' || !(await this.#hasMachineEnded(id))) await this.#expectKept(id);
    else if (step === 'pause' && status === 'PAUSED')
      throw new Error('it was said to be paused, and its machine ended');
    await this.#delete(id);
  }

  /** A killed machine is that of the source. Copies run, all of them, or there are none; the source runs on. */
  async #inFork(victim: Victim, afterMs: number): Promise<void> {
    const id = await this.#create();
    await this.#sh(id, keep);
    const body = { count: copiesOfFork, idempotency_key: `crash-${this.random.seed}-${this.#count++}` };
    const fork = () => this.server.ask<ForkAnswer>('POST', `/sandbox/${id}/fork`, this.key, body);
    const first = fork().catch(() => undefined);
    await this.#kill(victim, afterMs, id);
    await first;
    let copies: Answer[] = [];
    await this.#until('the fork is answered when it is asked for again', async () => {
      const again = await fork();
      copies = again.body.sandboxes ?? [];
      // Until its node is there again.
      return again.status !== 503 && !/it is (lost|pending)/.test(again.body.detail ?? '');
    });
    if (copies.length > 0 && copies.length !== copiesOfFork)
      throw new Error(`${copies.length} copies are left of ${copiesOfFork}`);
    for (const copy of copies) {
      await this.#expectKept(copy.id);
      await this.#delete(copy.id);
    }
    if (victim !== 'machine' || !(await this.#hasMachineEnded(id))) await this.#expectKept(id);
    await this.#delete(id);
  }

  /** Whether a sandbox whose machine may have been killed has ended of that. */
  async #hasMachineEnded(id: string): Promise<boolean> {
    await this.#until(`${id} has come to rest`, async () => {
      const { status, errorType } = await this.#get(id);
      if (status === 'ERROR' && errorType !== 'MACHINE_ENDED') throw new Error(`${id} ended as ${errorType}`);
      const machines = this.#machines().filter(({ commandLine }) => commandLine.includes(`sandlot-${id}`));
      return status === 'ERROR' || (status === 'PAUSED') === (machines.length === 0);
    });
    // What is known of a machine's end a moment later than its end.
    await pause(500);
    return (await this.#get(id)).status === 'ERROR';
  }

  /** One machine, or none while it rests, and nothing of what it had in its memory is lost. */
  async #expectKept(id: string): Promise<void> {
    const { code, stdout, stderr } = await this.server.run(['run', id, '--', '/bin/sh', '-c', look], {
      timeoutMs: 150_000,
    });
    if (stdout !== 'kept\nkept\n')
      throw new Error(`${id} has "${stdout}" (${code} ${stderr}) ${JSON.stringify(await this.#get(id))}`);
    const machines = this.#machines().filter(({ commandLine }) => commandLine.includes(`sandlot-${id}`));
    if (machines.length !== 1) throw new Error(`${id} has ${machines.length} machines`);
  }

  async #sh(id: string, line: string): Promise<void> {
    await this.server.mustRun(['run', id, '--', '/bin/sh', '-c', line]);
  }

  /** Kills, and starts what was killed again. Of machines: the one of `id`, or the newest that is not the anchor's. */
  async #kill(victim: Victim, afterMs: number, id?: string): Promise<void> {
    await pause(afterMs);
    if (victim === 'machine') {
      for (const { pid, commandLine } of this.#machines()) {
        if (
          id === undefined
            ? !commandLine.includes(`sandlot-${this.anchor}`)
            : commandLine.includes(`sandlot-${id}`)
        )
          killNow(pid);
      }
      return;
    }
    for (const { pid } of this.#daemon(victim)) killNow(pid);
    await this.server.up();
  }

  #daemon(victim: Victim): { pid: number }[] {
    const main = victim === 'node agent' ? 'node-agent/dist/main.js' : 'control-plane/dist/main.js';
    const found = processesWith(this.server.data).filter(({ commandLine }) => commandLine.includes(main));
    if (found.length !== 1) throw new Error(`there are ${found.length} processes of the ${victim}`);
    return found;
  }

  #machines() {
    return processesWith(this.server.data).filter(({ commandLine }) => /^\S*qemu-system/.test(commandLine));
  }

  #request() {
    return { name: 'crash', docker_image: this.image, memory_gb: 0.5, disk_size_gb: 2 };
  }

  async #create(): Promise<string> {
    const { body } = await this.server.ask<Answer>('POST', '/sandbox?wait=60', this.key, this.#request());
    if (body.status !== 'RUNNING') throw new Error(`${body.id} is ${body.status} before any kill`);
    return body.id;
  }

  async #get(id: string): Promise<Answer> {
    return (await this.server.ask<Answer>('GET', `/sandbox/${id}`, this.key)).body;
  }

  async #delete(id: string): Promise<void> {
    const { status } = await this.server.ask('DELETE', `/sandbox/${id}`, this.key);
    if (status !== 200) throw new Error(`the delete of ${id} answers ${status}`);
  }

  async #expectOutput(id: string): Promise<void> {
    const printed = await this.server.mustRun(['run', id, '--', 'echo', 'ready']);
    if (printed !== 'ready\n') throw new Error(`${id} printed "${printed}"`);
  }

  async #expectOnlyTheAnchor(): Promise<void> {
    const kept = await this.server.mustRun(['run', this.anchor, '--', 'cat', '/root/kept']);
    if (kept !== 'kept\n') throw new Error(`the other sandbox printed "${kept}"`);
    const { body } = await this.server.ask<{ sandboxes: Answer[] }>(
      'GET',
      '/sandbox?is_active=true',
      this.key,
    );
    const live = body.sandboxes.map(({ id }) => id);
    if (live.join() !== this.anchor) throw new Error(`live are ${live}, not ${this.anchor} alone`);
    // What a killed daemon has left is removed by the next one a moment after it answers.
    await this.#until('one machine and its network are left', async () => {
      const networks = namespacesOf(this.server.instanceId).length;
      return this.#machines().length === 1 && networks <= 1 + 2 + 1;
    });
    await this.#until('no snapshot is left', async () => {
      return readdirSync(join(this.server.data, 'node', 'snapshots')).length === 0;
    });
  }

  async #until(what: string, check: () => Promise<boolean>): Promise<void> {
    const deadline = performance.now() + 30_000;
    while (!(await check())) {
      if (performance.now() > deadline) throw new Error(`not within 30 s: ${what}`);
      await pause(100);
    }
  }
}

function killNow(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended by itself meanwhile.
  }
}
