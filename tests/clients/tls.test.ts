/**
 * prime-sandboxes 0.5.1 over https: API and files by HTTP/1.1, commands by HTTP/2 and with certifi's roots only,
 * so that a private authority has to be added there. Also `up` with TLS, and the CLI against such a server.
 */
import { execFileSync, spawn } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { TestAuthority } from '../../packages/control-plane/tests/test-authority.js';
import { inCheckout, pythonArchive } from '../driver/checkout.js';
import { type CliAnswer, TestServer } from '../driver/test-server.js';
import { venv } from './venv.js';

const image = 'python:3.11-slim';
const url = 'https://localhost:7171';
/** Of an earlier run that was killed, everything from here on is taken away again. */
const mark = '\n# Authority of a test of Sandlot\n';
let server: TestServer;
let bin: string;
let key: string;
let authority: TestAuthority;
let roots: string;
let rootsText: string;

beforeAll(async () => {
  bin = await venv('prime-sandboxes-tls', ['prime-sandboxes==0.5.1']);
  roots = execFileSync(path.join(bin, 'python'), ['-c', 'import certifi; print(certifi.where())'], {
    encoding: 'utf8',
  }).trim();
  rootsText = readFileSync(roots, 'utf8').split(mark)[0] ?? '';
  server = await TestServer.start();
  await server.mustRun(['image', 'import', pythonArchive, image], { timeoutMs: 300_000 });
  const folder = path.join(server.folder, 'tls');
  mkdirSync(folder, { mode: 0o755 });
  authority = new TestAuthority(folder);
}, 1_500_000);

afterAll(async () => {
  if (rootsText) writeFileSync(roots, rootsText);
  await server?.close();
}, 300_000);

/** The client's program, in the server's network. */
function runClient(mode: string, env: Record<string, string> = {}): Promise<CliAnswer> {
  const program = inCheckout('tests/clients/python/tls_client.py');
  const [command, argv] = server.namespace.command([path.join(bin, 'python'), program, image, mode]);
  const home = path.join(server.folder, `client-${mode}`);
  mkdirSync(home);
  const child = spawn(command, argv, {
    cwd: home,
    env: { PATH: '/usr/bin:/bin', HOME: home, PRIME_API_KEY: key, PRIME_API_BASE_URL: url, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 400_000,
  });
  return new Promise((resolve, reject) => {
    let [stdout, stderr] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    child.once('error', reject);
    child.once('close', (code) => resolve({ code: code ?? -1, stdout, stderr }));
  });
}

function toldBy({ code, stdout, stderr }: CliAnswer): Record<string, unknown> {
  if (code !== 0)
    throw new Error(`the client ended with ${code}:\n${stderr.slice(-4_000)}\n${server.logs()}`);
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as Record<string, unknown>;
}

it('`up` changes to TLS on the same port, once its files can be used', { timeout: 400_000 }, async () => {
  const { certPath: cert, keyPath: keyFile } = authority.issue('server', 'DNS:localhost');
  const up = ['up', '--detach', '--restart', '--tls-cert', cert, '--tls-key', keyFile, '--public-url', url];
  chmodSync(keyFile, 0o600);
  const refused = await server.run(up, { timeoutMs: 120_000 });
  expect(refused.stderr).toContain('cannot be read by the user "sandlot"');
  expect(refused.code).toBe(2);
  chmodSync(keyFile, 0o644);
  const output = await server.mustRun(up, {
    timeoutMs: 300_000,
    env: { NODE_EXTRA_CA_CERTS: authority.file },
  });
  expect(output).toContain(`running: ${url}`);
  // Not SANDLOT_URL, but what `up` has written.
  const env = { SANDLOT_URL: '', NODE_EXTRA_CA_CERTS: authority.file };
  const config = await server.json<{ url: string; api_key: string }>(['config'], { env });
  expect(config.url).toBe(url);
  key = config.api_key;
  expect(await server.json<{ url: string }>(['status'], { env })).toMatchObject({ url });
  const distrusted = await server.run(['status'], { env: { SANDLOT_URL: '' } });
  expect(distrusted.stderr).toContain('its authority is not known here');
  expect(distrusted.stderr).toContain('NODE_EXTRA_CA_CERTS');
  const id = await server.lastLine(['create', image], { env, timeoutMs: 200_000 });
  const ran = await server.run(['run', id, '--', 'echo', 'from here'], { env, timeoutMs: 120_000 });
  expect(ran, ran.stderr).toMatchObject({ code: 0, stdout: 'from here\n' });
  await server.mustRun(['rm', id], { env });
  // A renewal that went wrong: what runs has the old certificate, and a restart would have none.
  chmodSync(keyFile, 0o600);
  const kept = await server.run(['up', '--detach', '--restart'], { env, timeoutMs: 120_000 });
  expect(kept.code).toBe(2);
  expect(kept.stderr).toContain('Nothing was started or stopped');
  expect((await server.run(['status'], { env })).code).toBe(0);
  chmodSync(keyFile, 0o644);
});

it('with the authority in certifi, everything works', { timeout: 500_000 }, async () => {
  writeFileSync(roots, rootsText + mark + authority.pem);
  expect(toldBy(await runClient('with-ca'))).toEqual({
    exec: ['create\n', 'oops\n', 3],
    file: true,
    size: String(256 * 40_000),
    job: [true, 0, 'in the background\n'],
    process: ['TYPED\n', 0],
    status: 'TERMINATED',
  });
});

it('with the authority only in SSL_CERT_FILE, the API works and commands fail', {
  timeout: 500_000,
}, async () => {
  writeFileSync(roots, rootsText);
  const told = toldBy(await runClient('without-ca', { SSL_CERT_FILE: authority.file }));
  expect(told).toMatchObject({ status: 'TERMINATED' });
  expect(told['failure']).toMatch(/UnknownIssuer|certificate/);
});
