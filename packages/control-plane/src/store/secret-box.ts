/**
 * Encrypts secrets at rest: AES-256-GCM with a key that lies in a file outside the database, bound
 * to the sandbox they belong to. A stolen database alone gives none of them away.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { readKeyFile } from './key-file.js';

const ivBytes = 12;
const tagBytes = 16;

/** Holds the key. */
export class SecretBox {
  readonly #key: Buffer;

  constructor(key: Buffer) {
    if (key.length !== 32) throw new Error('the key for secrets must have 32 bytes');
    this.#key = key;
  }

  /** Reads the key from its file, or makes both. */
  static open(file: string): SecretBox {
    return new SecretBox(readKeyFile(file, () => randomBytes(32)));
  }

  /** Encrypts; `owner` is the id that the text belongs to. */
  seal(text: string, owner: string): string {
    const iv = randomBytes(ivBytes);
    const cipher = createCipheriv('aes-256-gcm', this.#key, iv);
    cipher.setAAD(Buffer.from(owner));
    const sealed = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
    return Buffer.concat([iv, cipher.getAuthTag(), sealed]).toString('base64');
  }

  /** Decrypts; throws when key, owner or text do not belong together. */
  open(sealed: string, owner: string): string {
    const bytes = Buffer.from(sealed, 'base64');
    const decipher = createDecipheriv('aes-256-gcm', this.#key, bytes.subarray(0, ivBytes));
    decipher.setAAD(Buffer.from(owner));
    decipher.setAuthTag(bytes.subarray(ivBytes, ivBytes + tagBytes));
    return Buffer.concat([decipher.update(bytes.subarray(ivBytes + tagBytes)), decipher.final()]).toString(
      'utf8',
    );
  }
}
