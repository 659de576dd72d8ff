/** Makes ids and keys: random, so that they are unique among all servers and cannot be guessed. */
import { randomBytes } from 'node:crypto';

const alphabet = 'abcdefghijklmnopqrstuvwxyz234567';

/** An id: 20 characters of base32, the first a letter, 99.7 bits. */
export function newId(): string {
  return alphabet[randomByte() % 26] + base32(19);
}

/** A team's id: as Prime's command line wants one, a `c` and 24 more, or `prime config set-team-id` refuses it. */
export function newTeamId(): string {
  return `c${base32(24)}`;
}

/** An API key: a mark that secret scanners can find, and 160 random bits. */
export function newApiKey(): string {
  return `sl_${base32(32)}`;
}

function base32(length: number): string {
  // 256 is a multiple of 32, so every character is equally likely.
  return Array.from(randomBytes(length), (byte) => alphabet[byte & 31]).join('');
}

/** A byte below 234, the largest multiple of 26, so that the remainder is not skewed. */
function randomByte(): number {
  for (;;) for (const byte of randomBytes(16)) if (byte < 234) return byte;
}
