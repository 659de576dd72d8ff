/** What the client says of a server whose certificate it does not trust, or that speaks no TLS. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer as createPlain } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo, Server } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { TestAuthority } from '../../control-plane/tests/test-authority.js';
import { Sandlot } from '../src/client.js';

const folder = mkdtempSync(path.join(tmpdir(), 'sandlot-sdk-tls-'));
const authority = new TestAuthority(folder);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Connections taken while the client asked, and what it said. */
async function ask(server: Server, scheme = 'https'): Promise<{ message: string; connections: number }> {
  let connections = 0;
  server.on('connection', () => connections++);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const client = new Sandlot({
    url: `${scheme}://127.0.0.1:${(server.address() as AddressInfo).port}`,
    apiKey: 'k',
  });
  try {
    return await client.server.status().then(
      () => ({ message: 'it was answered', connections }),
      (error: Error) => ({ message: error.message, connections }),
    );
  } finally {
    client.close();
    server.close();
  }
}

function serverWith(names: string): Server {
  const { certPath, keyPath } = authority.issue('server', names);
  return createServer({ cert: readFileSync(certPath), key: readFileSync(keyPath) }, (_request, response) =>
    response.end('{}'),
  );
}

it('says that the authority is not known and how to trust it, and does not try again', async () => {
  const { message, connections } = await ask(serverWith('IP:127.0.0.1'));
  expect(message).toContain('the certificate of the server is not trusted: its authority is not known here');
  expect(message).toContain('NODE_EXTRA_CA_CERTS');
  expect(connections).toBe(1);
});

it('says that a self-signed certificate is one', async () => {
  const [cert, key] = [path.join(folder, 'own.pem'), path.join(folder, 'own.key')];
  const made = [
    'req',
    '-x509',
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-subj',
    '/CN=own',
    '-out',
    cert,
    '-keyout',
    key,
  ];
  execFileSync('openssl', made, { stdio: 'pipe', timeout: 30_000 });
  const own = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (_request, response) =>
    response.end('{}'),
  );
  expect((await ask(own)).message).toContain('it is self-signed');
});

it('says that TLS may be spoken where it was not', { timeout: 60_000 }, async () => {
  const { message } = await ask(serverWith('IP:127.0.0.1'), 'http');
  expect(message).toContain('before it answered; a server with TLS has an https:// URL');
});

it('says that no TLS is spoken', { timeout: 60_000 }, async () => {
  const { message } = await ask(createPlain((_request, response) => response.end('{}')));
  expect(message).toContain('a server without TLS has an http:// URL');
});
