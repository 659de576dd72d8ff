/** The pair of keys that ties control plane and node agent: one signs gateway tokens, the other checks them. Made by the first `up`. */
import { generateKeyPairSync } from 'node:crypto';
import { chmodSync, chownSync, existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Layout } from './layout.js';
import type { UserIds } from './service-user.js';

/** Makes `gateway.key` (PEM, PKCS 8, owner only) and `gateway.pub` (PEM, SPKI) if they are missing. */
export function ensureGatewayKeys(layout: Layout, owner: UserIds | undefined): void {
  mkdirSync(layout.keys, { recursive: true, mode: 0o700 });
  chmodSync(layout.keys, 0o700);
  if (owner) chownSync(layout.keys, owner.uid, owner.gid);
  const privateFile = path.join(layout.keys, 'gateway.key');
  if (existsSync(privateFile) && existsSync(layout.gatewayPublicKey)) return;
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  place(privateFile, privateKey.export({ type: 'pkcs8', format: 'pem' }) as string, 0o600, owner);
  place(layout.gatewayPublicKey, publicKey.export({ type: 'spki', format: 'pem' }) as string, 0o644, owner);
}

function place(file: string, text: string, mode: number, owner: UserIds | undefined): void {
  writeFileSync(`${file}.new`, text, { mode });
  if (owner) chownSync(`${file}.new`, owner.uid, owner.gid);
  renameSync(`${file}.new`, file);
}
