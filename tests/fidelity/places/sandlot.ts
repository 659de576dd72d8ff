/** Sandlot sandboxes of the same image, without and with its init, made by the server that tools/fidelity.sh has started, through the SDK. */
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { Sandlot } from '@sandlot/sdk';
import { guestFolder, type Inputs, type PlaceResult, ResultLines, runnerArgv } from './place.js';

const diskGiB = 5;
const withInit =
  "a sandbox with `init: true`, booted by the image's systemd; only the probes that process 1 or its services could change";
const bootTimeoutMs = 300_000;
/** The first command may come before systemd answers. */
const untilBooted = [
  'sh',
  '-c',
  'for try in $(seq 600); do case $(systemctl is-system-running --wait 2>/dev/null) in running|degraded|maintenance) break;; esac; sleep 0.2; done',
];

/** Which sandbox: without an init, where all probes run, or with the image's, where those of `ids` do. */
export type Kind = { init: false } | { init: true; ids: readonly string[] };

/** Imports the image, creates a sandbox, runs the probes, deletes it. */
export async function runSandlot(inputs: Inputs, kind: Kind): Promise<PlaceResult> {
  const name = `fidelity:${inputs.imageKey}`;
  importImage(inputs, name);
  const { url, api_key: apiKey } = JSON.parse(sandlot(inputs, ['config', '--output', 'json'])) as {
    url: string;
    api_key: string;
  };
  const client = new Sandlot({ url, apiKey });
  try {
    const sandbox = await client.sandboxes.create({
      image: name,
      name: 'fidelity',
      cpu: inputs.vcpus,
      memoryGiB: inputs.memoryMiB / 1024,
      diskGiB,
      timeoutMinutes: 60,
      init: kind.init,
    });
    try {
      await sandbox.waitUntilRunning();
      // The plain VM's probes begin when its boot has ended.
      if (kind.init) await sandbox.run(untilBooted, { timeoutMs: bootTimeoutMs });
      inputs.say(`sandlot${kind.init ? ' with init' : ''}: running`);
      for (const file of readdirSync(inputs.kit))
        await sandbox.files.uploadFile(join(inputs.kit, file), `${guestFolder}/${file}`);
      await sandbox.run(['chmod', '-R', '+x', guestFolder]);
      const argv = kind.init ? runnerArgv({ ...inputs, only: kind.ids }) : runnerArgv(inputs);
      const process = await sandbox.exec(argv, { timeoutMs: inputs.timeoutMs });
      const lines = new ResultLines();
      const output = async function* () {
        for await (const { stream, data } of process.output) if (stream === 'stdout') yield data;
      };
      await lines.read(Readable.from(output()));
      await process.wait();
      if (!lines.ended) throw new Error('the probes in the sandbox did not come to an end');
      const { values, times } = lines;
      return kind.init
        ? { name: 'Sandlot, `init: true`', about: about(inputs, withInit), values, times, ran: kind.ids }
        : { name: 'Sandlot', about: about(inputs, 'a sandbox without init'), values, times };
    } finally {
      await sandbox.delete();
    }
  } finally {
    client.close();
  }
}

function about(inputs: Inputs, what: string): string {
  const commit = execFileSync('git', ['rev-parse', '--short', 'HEAD'], {
    cwd: inputs.root,
    encoding: 'utf8',
  }).trim();
  const changed = execFileSync('git', ['status', '--porcelain', '-uno'], {
    cwd: inputs.root,
    encoding: 'utf8',
  });
  return `commit ${commit}${changed === '' ? '' : ' with changes'}, \`sandlot up\`, ${what}; probes by one exec`;
}

function importImage(inputs: Inputs, name: string): void {
  try {
    sandlot(inputs, ['image', 'inspect', name]);
  } catch {
    inputs.say('sandlot: importing the image');
    sandlot(inputs, ['image', 'import', inputs.archive, name]);
  }
}

function sandlot(inputs: Inputs, args: string[]): string {
  return execFileSync(join(inputs.root, 'bin/sandlot'), args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    maxBuffer: 64 * 2 ** 20,
    timeout: 600_000,
  });
}
