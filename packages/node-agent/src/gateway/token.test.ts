import { generateKeyPairSync, sign } from 'node:crypto';
import type { GatewayTokenClaims } from '@sandlot/protocol';
import { expect, it } from 'vitest';
import { TokenVerifier } from './token.js';

const { publicKey, privateKey } = generateKeyPairSync('ed25519');
const verifier = new TokenVerifier(publicKey);

function issue(claims: GatewayTokenClaims, key = privateKey): string {
  const body = `v1.${Buffer.from(JSON.stringify(claims)).toString('base64url')}`;
  return `${body}.${sign(null, Buffer.from(body), key).toString('base64url')}`;
}

const nowS = Math.floor(Date.now() / 1000);
const good = { sub: 'sb-1', gen: 1, exp: nowS + 60 };

it('accepts what was signed for this sandbox, also the second time', () => {
  expect(verifier.check(issue(good), 'sb-1')).toEqual(good);
  expect(verifier.check(issue(good), 'sb-1')).toEqual(good);
});

it.each([
  ['of another sandbox', issue(good), 'sb-2'],
  ['expired', issue({ ...good, exp: nowS - 1 }), 'sb-1'],
  ['signed by another key', issue(good, generateKeyPairSync('ed25519').privateKey), 'sb-1'],
  ['changed', issue(good).replace('v1.ey', 'v1.eyJ'), 'sb-1'],
  ['not a token', 'hello', 'sb-1'],
  ['with more parts', `${issue(good)}.x`, 'sb-1'],
])('refuses one that is %s', (_what, token, sandbox) => {
  expect(verifier.check(token, sandbox)).toBeUndefined();
});
