/** A Sandlot sandbox of the same image, made by the server that tools/fidelity.sh has started, through the SDK. */
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { Sandlot } from '@sandlot/sdk';
import { guestFolder, type Inputs, type PlaceResult, ResultLines, runnerArgv } from './place.js';

const diskGiB = 5;

/** Imports the image, creates a sandbox, runs the probes, deletes it. */
export async function runSandlot(inputs: Inputs): Promise<PlaceResult> {
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
    });
    try {
      await sandbox.waitUntilRunning();
      inputs.say('sandlot: running');
      for (const file of readdirSync(inputs.kit))
        await sandbox.files.uploadFile(join(inputs.kit, file), `${guestFolder}/${file}`);
      await sandbox.run(['chmod', '-R', '+x', guestFolder]);
      const process = await sandbox.exec(runnerArgv(inputs), { timeoutMs: inputs.timeoutMs });
      const lines = new ResultLines();
      const output = async function* () {
        for await (const { stream, data } of process.output) if (stream === 'stdout') yield data;
      };
      await lines.read(Readable.from(output()));
      await process.wait();
      if (!lines.ended) throw new Error('the probes in the sandbox did not come to an end');
      return { name: 'Sandlot', about: about(inputs), values: lines.values, times: lines.times };
    } finally {
      await sandbox.delete();
    }
  } finally {
    client.close();
  }
}

function about(inputs: Inputs): string {
  const commit = execFileSync('git', ['rev-parse', '--short', 'HEAD'], {
    cwd: inputs.root,
    encoding: 'utf8',
  }).trim();
  const changed = execFileSync('git', ['status', '--porcelain', '-uno'], {
    cwd: inputs.root,
    encoding: 'utf8',
  });
  return `commit ${commit}${changed === '' ? '' : ' with changes'}, \`sandlot up\`, a sandbox without init; probes by one exec`;
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
