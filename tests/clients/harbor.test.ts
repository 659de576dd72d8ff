/** Harbor 0.26.0 with its own `prime` environment: a right solution scores 1.0, a wrong one 0.0. */
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { pythonArchive } from '../driver/checkout.js';
import { TestServer } from '../driver/test-server.js';
import { FeatureTests } from './feature-results.js';
import { ClientShell } from './published-program.js';
import { pythonOf, venv } from './venv.js';

const client = 'harbor 0.26.0';
const image = 'python:3.11-slim';
const jobMs = 900_000;
const tests = new FeatureTests('harbor');

let server: TestServer;
let shell: ClientShell;
let key: string;

beforeAll(async () => {
  const python = await pythonOf('3.12');
  if (!python) throw new Error('Harbor wants Python 3.12 or later, and there is none on this machine');
  const bin = await venv('harbor-0.26.0', ['harbor[prime]==0.26.0'], python);
  server = await TestServer.start();
  await server.mustRun(['image', 'import', pythonArchive, image], { timeoutMs: 300_000 });
  key = (await server.json<{ api_key: string }>(['config'])).api_key;
  shell = new ClientShell(server, bin, key, 'home-harbor');
}, 1_800_000);
afterAll(() => server?.close(), 300_000);

/** Writes a task whose solution leaves `answer`, while its test wants "hello". */
function task(name: string, answer: string): string {
  const folder = path.join(shell.home, name);
  for (const part of ['environment', 'solution', 'tests'])
    mkdirSync(path.join(folder, part), { recursive: true });
  const files = {
    'task.toml': `version = "1.0"
[metadata]
[verifier]
timeout_sec = 300.0
[agent]
timeout_sec = 300.0
[environment]
docker_image = "${image}"
cpus = 1
memory_mb = 512
storage_mb = 2048
`,
    'instruction.md': 'Write hello to /tmp/answer.\n',
    'environment/Dockerfile': `FROM ${image}\n`,
    'solution/solve.sh': `#!/bin/bash\necho ${answer} > /tmp/answer\n`,
    'tests/test.sh': `#!/bin/bash
mkdir -p /logs/verifier
if grep -qx hello /tmp/answer; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
`,
  };
  for (const [file, text] of Object.entries(files)) {
    writeFileSync(path.join(folder, file), text);
    if (file.endsWith('.sh')) chmodSync(path.join(folder, file), 0o755);
  }
  return folder;
}

/** Plays a task by Harbor's oracle, which runs its solution; answers the rewards that it has written. */
async function rewards(name: string, answer: string): Promise<number[]> {
  const folder = task(name, answer);
  const jobs = path.join(shell.home, `jobs-${name}`);
  await shell.mustRun('harbor', ['run', '-p', folder, '-a', 'oracle', '-e', 'prime', '-o', jobs], {
    timeoutMs: jobMs,
  });
  const files = readdirSync(jobs, { recursive: true, encoding: 'utf8' });
  return files
    .filter((file) => path.basename(file) === 'reward.txt')
    .map((file) => Number(readFileSync(path.join(jobs, file), 'utf8')));
}

tests.works(
  client,
  'harbor run -e prime: a right solution scores 1.0',
  async () => expect(await rewards('right', 'hello')).toEqual([1]),
  jobMs,
);
tests.works(
  client,
  'harbor run -e prime: a wrong solution scores 0.0',
  async () => expect(await rewards('wrong', 'goodbye')).toEqual([0]),
  jobMs,
);
tests.works(
  client,
  'harbor leaves no sandbox behind',
  async () => {
    const { body } = await server.ask<{ total: number }>('GET', '/sandbox?is_active=true', key);
    expect(body.total).toBe(0);
  },
  jobMs,
);
