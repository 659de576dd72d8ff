/** Signs the gateway's tokens; the node agent checks them with the public key alone (`protocol/gateway.ts`). */
import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { GatewayAuth, GatewayTokenClaims } from '@sandlot/protocol';
import type { SandboxRecord } from '../domain/record.js';
import { readKeyFile } from '../store/key-file.js';

/** Long, because clients keep tokens in files that all their processes fight over. */
const lifetimeMs = 24 * 60 * 60 * 1000;

/** Holds the private key. */
export class GatewayTokens {
  constructor(
    private readonly key: KeyObject,
    private readonly now: () => number,
  ) {}

  /** Reads `gateway.key` in a folder, or makes it and `gateway.pub` for the node. */
  static open(folder: string, now: () => number): GatewayTokens {
    const pem = readKeyFile(join(folder, 'gateway.key'), () =>
      Buffer.from(generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' })),
    );
    const key = createPrivateKey(pem);
    const publicFile = join(folder, 'gateway.pub');
    if (!existsSync(publicFile))
      writeFileSync(publicFile, createPublicKey(key).export({ type: 'spki', format: 'pem' }), {
        mode: 0o644,
      });
    return new GatewayTokens(key, now);
  }

  /**
   * How to reach a sandbox; good also for one that has ended, whose gateway then says so.
   * @param inView for an agent: good for commands in the default view only
   */
  authorize(record: SandboxRecord, publicOrigin: string, inView = false): GatewayAuth {
    const exp = Math.floor((this.now() + lifetimeMs) / 1000);
    return {
      token: this.#sign({ sub: record.id, gen: record.generation, exp, ...(inView ? { view: true } : {}) }),
      gateway_url: `${publicOrigin}/gw`,
      user_ns: record.ownerId,
      job_id: record.id,
      expires_at: new Date(exp * 1000).toISOString(),
      is_vm: record.request.vm,
      ...(inView ? { in_view: true } : {}),
    };
  }

  #sign(claims: GatewayTokenClaims): string {
    const body = `v1.${Buffer.from(JSON.stringify(claims)).toString('base64url')}`;
    return `${body}.${sign(null, Buffer.from(body), this.key).toString('base64url')}`;
  }
}
