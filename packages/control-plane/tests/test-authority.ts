/** A certificate authority of a test's own, made by openssl: issues what the tests of TLS serve and trust. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CertificateFiles } from '../src/options.js';

/** Keeps its files in a folder of the caller's. */
export class TestAuthority {
  /** PEM file of the authority itself: what clients must trust. */
  readonly file: string;
  readonly #key: string;

  constructor(private readonly folder: string) {
    this.file = join(folder, 'ca.pem');
    this.#key = join(folder, 'ca.key');
    this.#openssl(
      ...['req', '-x509', ...newKey, '-keyout', this.#key, '-out', this.file, '-days', '2'],
      ...['-subj', '/CN=Sandlot test authority', '-addext', 'basicConstraints=critical,CA:TRUE'],
      ...['-addext', 'keyUsage=critical,keyCertSign,cRLSign'],
    );
  }

  get pem(): string {
    return readFileSync(this.file, 'utf8');
  }

  /** A certificate for names such as `DNS:localhost` and `IP:127.0.0.1`, valid for two days or not any more. */
  issue(name: string, altNames: string, valid: 'now' | 'past' = 'now'): CertificateFiles {
    const [cert, key, request] = ['pem', 'key', 'csr'].map((end) => join(this.folder, `${name}.${end}`)) as [
      string,
      string,
      string,
    ];
    const extensions = join(this.folder, `${name}.ext`);
    writeFileSync(extensions, `subjectAltName=${altNames}\nextendedKeyUsage=serverAuth\n`);
    this.#openssl('req', '-new', ...newKey, '-keyout', key, '-out', request, '-subj', `/CN=${name}`);
    this.#openssl(
      ...['x509', '-req', '-in', request, '-CA', this.file, '-CAkey', this.#key, '-CAcreateserial'],
      // A negative number of days ends before it begins, which is as expired as it gets.
      ...['-out', cert, '-extfile', extensions, '-days', valid === 'now' ? '2' : '-1'],
    );
    return { certPath: cert, keyPath: key };
  }

  #openssl(...args: string[]): void {
    execFileSync('openssl', args, { stdio: 'pipe', timeout: 30_000 });
  }
}

const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
