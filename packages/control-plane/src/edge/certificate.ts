/**
 * The certificate and key of the TLS listener: read, checked so that a mistake has a name, and read again
 * when the files change. Used by `start.ts`, and by `main.ts` to check flags before anything is stopped.
 */
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { isIP } from 'node:net';
import { userInfo } from 'node:os';
import { createSecureContext } from 'node:tls';
import type { Logger } from 'pino';
import { type CertificateFiles, OptionError } from '../options.js';

/** PEM text of both. */
export interface Certificate {
  cert: string;
  key: string;
}

/** How often the files are looked at. Their names may be links that are turned, so that only asking is sure. */
const lookMs = 5_000;

/** Reads both. Throws {@link OptionError}; what only clients may refuse is a warning. */
export function readCertificate(
  files: CertificateFiles,
  publicUrl?: string,
): Certificate & { warnings: string[] } {
  const cert = readText('--tls-cert', files.certPath);
  const key = readText('--tls-key', files.keyPath);
  const leaf = parseCertificate(files.certPath, cert);
  const privateKey = parseKey(files.keyPath, key);
  if (!leaf.checkPrivateKey(privateKey))
    throw new OptionError(
      `the key in ${files.keyPath} does not belong to the certificate in ${files.certPath} (${oneLine(leaf.subject)}): give the key that it was made with; of a chain the server's own certificate comes first`,
    );
  try {
    createSecureContext({ cert, key });
  } catch (cause) {
    throw new OptionError(`${files.certPath} and ${files.keyPath} cannot be used for TLS: ${textOf(cause)}`, {
      cause,
    });
  }
  return { cert, key, warnings: warningsOf(files.certPath, leaf, publicUrl) };
}

/** The certificate in use, and each renewed one that is whole; one that is not is logged and passed over. */
export class CertificateWatch {
  /** What the files held at first. */
  readonly first: Certificate;
  #timer: NodeJS.Timeout | undefined;
  #seen: string;

  /** Throws what {@link readCertificate} throws. */
  constructor(
    private readonly files: CertificateFiles,
    private readonly publicUrl: string | undefined,
    private readonly log: Logger,
  ) {
    // Before the read: what changes after it is seen.
    this.#seen = stampOf(files);
    const { warnings, ...certificate } = readCertificate(files, publicUrl);
    for (const warning of warnings) log.warn(warning);
    this.first = certificate;
  }

  /** Calls back with each renewed certificate from now on, and with one that came since the first. */
  start(onRenewed: (certificate: Certificate) => void, everyMs = lookMs): void {
    this.#timer = setInterval(() => this.#look(onRenewed), everyMs).unref();
  }

  /** Looks no more. */
  close(): void {
    clearInterval(this.#timer);
  }

  #look(onRenewed: (certificate: Certificate) => void): void {
    const stamp = stampOf(this.files);
    if (stamp === this.#seen) return;
    this.#seen = stamp;
    try {
      const { warnings, ...certificate } = readCertificate(this.files, this.publicUrl);
      onRenewed(certificate);
      this.log.info({ file: this.files.certPath }, 'a renewed certificate is in use');
      for (const warning of warnings) this.log.warn(warning);
    } catch (error) {
      // Often only the first of two files that are being replaced: the second changes the stamp again.
      this.log.warn({ err: error }, 'the changed certificate cannot be used; the old one stays in use');
    }
  }
}

function stampOf({ certPath, keyPath }: CertificateFiles): string {
  return [certPath, keyPath]
    .map((file) => {
      const stat = statSync(file, { bigint: true, throwIfNoEntry: false });
      return stat === undefined
        ? 'none'
        : `${stat.dev}:${stat.ino}:${stat.size}:${stat.mtimeNs}:${stat.ctimeNs}`;
    })
    .join(' ');
}

function readText(flag: string, file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') throw new OptionError(`${flag}: there is no file ${file}`, { cause });
    if (code === 'EACCES')
      throw new OptionError(
        `${flag}: ${file} cannot be read by the user "${userInfo().username}", as which the control plane runs: let that user read it and its folders`,
        { cause },
      );
    throw new OptionError(`${flag}: ${file} cannot be read: ${textOf(cause)}`, { cause });
  }
}

function parseCertificate(file: string, text: string): X509Certificate {
  try {
    if (!text.includes('-----BEGIN CERTIFICATE-----')) throw new Error('no BEGIN CERTIFICATE line');
    return new X509Certificate(text);
  } catch (cause) {
    throw new OptionError(`--tls-cert: ${file} is not a certificate in PEM form: ${textOf(cause)}`, {
      cause,
    });
  }
}

function parseKey(file: string, text: string): KeyObject {
  try {
    return createPrivateKey(text);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    const isLocked = code === 'ERR_MISSING_PASSPHRASE' || text.includes('ENCRYPTED');
    throw new OptionError(
      isLocked
        ? `--tls-key: ${file} has a passphrase, which nobody could type at a start: store it without (openssl pkey)`
        : `--tls-key: ${file} is not a private key in PEM form: ${textOf(cause)}`,
      { cause },
    );
  }
}

function warningsOf(file: string, leaf: X509Certificate, publicUrl: string | undefined): string[] {
  const warnings: string[] = [];
  if (Date.parse(leaf.validTo) < Date.now())
    warnings.push(
      `the certificate in ${file} has expired on ${leaf.validTo}: clients will refuse it until it is renewed`,
    );
  if (Date.parse(leaf.validFrom) > Date.now())
    warnings.push(
      `the certificate in ${file} is not valid before ${leaf.validFrom}: clients will refuse it until then`,
    );
  const host = publicUrl === undefined ? undefined : new URL(publicUrl).hostname.replace(/^\[|\]$/g, '');
  if (host !== undefined && !(isIP(host) ? leaf.checkIP(host) : leaf.checkHost(host)))
    warnings.push(
      `the certificate in ${file} is not for ${host}, the host of --public-url: clients will refuse it`,
    );
  return warnings;
}

function oneLine(text: string): string {
  return text.trim().replaceAll('\n', ', ');
}

function textOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
