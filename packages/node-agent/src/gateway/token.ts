/** Checks the gateway's bearer tokens; the form is in protocol's `gateway.ts`. Verified tokens are remembered: each exec carries one. */
import { createPublicKey, type KeyObject, verify } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { GatewayTokenClaims } from '@sandlot/protocol';

const maxRemembered = 10_000;

/** Holds the control plane's public key. */
export class TokenVerifier {
  readonly #verified = new Map<string, GatewayTokenClaims>();

  constructor(private readonly key: KeyObject) {}

  /** @param path PEM file of an Ed25519 public key */
  static async open(path: string): Promise<TokenVerifier> {
    return new TokenVerifier(createPublicKey(await readFile(path)));
  }

  /** The claims of a good token of this sandbox, else undefined. */
  check(token: string, sandboxId: string): GatewayTokenClaims | undefined {
    const claims = this.#verified.get(token) ?? this.#verify(token);
    if (!claims || claims.sub !== sandboxId || claims.exp * 1000 <= Date.now()) return undefined;
    return claims;
  }

  #verify(token: string): GatewayTokenClaims | undefined {
    const [version, body, signature, ...rest] = token.split('.');
    if (version !== 'v1' || !body || !signature || rest.length > 0) return undefined;
    const signed = Buffer.from(`${version}.${body}`);
    if (!verify(null, signed, this.key, Buffer.from(signature, 'base64url'))) return undefined;
    const claims = JSON.parse(Buffer.from(body, 'base64url').toString()) as GatewayTokenClaims;
    if (this.#verified.size >= maxRemembered) this.#verified.clear();
    this.#verified.set(token, claims);
    return claims;
  }
}
