/** Limits of the TLS listener, and what is said of certificates that cannot be used. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import type { AddressInfo } from 'node:net';
import { connect as connectTcp } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { afterAll, expect, it } from 'vitest';
import { readCertificate } from '../src/edge/certificate.js';
import { SecureListener } from '../src/edge/secure-listener.js';
import { OptionError } from '../src/options.js';
import { RawHttp2Client } from './raw-http2-client.js';
import { TestAuthority } from './test-authority.js';

const folder = mkdtempSync(join(tmpdir(), 'sandlot-cert-'));
const authority = new TestAuthority(folder);
const files = authority.issue('server', 'DNS:sandlot.example.org,DNS:*.boxes.example.org,IP:127.0.0.1');
const other = authority.issue('other', 'DNS:localhost');
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function write(name: string, text: string): string {
  const file = join(folder, name);
  writeFileSync(file, text);
  return file;
}

it('closes connections that send no request, or too slowly, and those without one for long', async () => {
  const listener = new SecureListener((_request, response) => response.end('ok'), readCertificate(files), {
    headersTimeoutMs: 300,
    keepAliveTimeoutMs: 300,
  });
  await new Promise<void>((resolve) => listener.server.listen(0, '127.0.0.1', resolve));
  const { port } = listener.server.address() as AddressInfo;
  const tls = { host: '127.0.0.1', port, ca: authority.pem };
  try {
    const noHandshake = connectTcp(port, '127.0.0.1');
    const noPreface = connectTls({ ...tls, ALPNProtocols: ['h2'] });
    const noRequest = await RawHttp2Client.open(port, authority.pem);
    const served = await RawHttp2Client.open(port, authority.pem);
    served.beginPost('/', 'x');
    const ends = [noHandshake, noPreface].map((socket) => {
      socket.on('error', () => undefined).resume();
      return new Promise<void>((resolve) => socket.once('close', () => resolve()));
    });
    await Promise.all([...ends, noRequest.closed(), served.closed()]);
    const answer = await new Promise((resolve, reject) => {
      request({ ...tls, agent: false }, (incoming) => resolve(incoming.resume().statusCode))
        .once('error', reject)
        .end();
    });
    expect(answer).toBe(200);
  } finally {
    listener.closeIdleConnections();
    listener.server.close();
  }
});

it('reads a certificate with its chain, and keys of every form', () => {
  expect(readCertificate(files, 'https://sandlot.example.org').warnings).toEqual([]);
  const chain = write('chain.pem', readCertificate(files).cert + authority.pem);
  expect(
    readCertificate({ certPath: chain, keyPath: files.keyPath }, 'https://a.boxes.example.org:8443').warnings,
  ).toEqual([]);
  const traditional = join(folder, 'ec.key');
  execFileSync('openssl', ['ec', '-in', files.keyPath, '-out', traditional], { stdio: 'pipe' });
  expect(
    readCertificate({ certPath: files.certPath, keyPath: traditional }, 'https://127.0.0.1:1').warnings,
  ).toEqual([]);
});

it('warns of an expired certificate and of one for another name, and takes both', () => {
  const past = authority.issue('past', 'DNS:sandlot.example.org', 'past');
  expect(readCertificate(past, 'https://elsewhere.example.org').warnings).toEqual([
    expect.stringMatching(/past\.pem has expired on .*: clients will refuse it/),
    expect.stringContaining('is not for elsewhere.example.org, the host of --public-url'),
  ]);
});

it('says what is wrong with files that cannot be used', () => {
  const refusal = (certPath: string, keyPath: string) => {
    try {
      readCertificate({ certPath, keyPath });
    } catch (error) {
      expect(error).toBeInstanceOf(OptionError);
      return (error as Error).message;
    }
    throw new Error('it was taken');
  };
  expect(refusal('/no/such.pem', files.keyPath)).toBe('--tls-cert: there is no file /no/such.pem');
  expect(refusal(files.certPath, '/no/such.key')).toBe('--tls-key: there is no file /no/such.key');
  expect(refusal(folder, files.keyPath)).toContain('cannot be read: EISDIR');
  expect(refusal(files.certPath, other.keyPath)).toMatch(/does not belong to the certificate .*CN=server/);
  expect(refusal(files.keyPath, files.keyPath)).toContain('is not a certificate in PEM form');
  expect(refusal(write('broken.pem', '-----BEGIN CERTIFICATE-----\nAAAA\n'), files.keyPath)).toContain(
    'is not a certificate',
  );
  expect(refusal(files.certPath, files.certPath)).toContain('is not a private key in PEM form');
  const locked = join(folder, 'locked.key');
  execFileSync('openssl', ['pkey', '-in', files.keyPath, '-aes256', '-passout', 'pass:x', '-out', locked], {
    stdio: 'pipe',
  });
  expect(refusal(files.certPath, locked)).toContain('has a passphrase');
});
