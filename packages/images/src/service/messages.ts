/**
 * What the node agent's process and the process of the image store say to each other over Node's channel between
 * parent and child. Both ends are always of one build: there is no version.
 */
import type { ImageErrorCode } from '@sandlot/protocol';
import type { ImageStoreOptions } from '../open-image-store.js';
import type { ImageStore, PullOptions, StoreProgress } from '../store.js';

/** Methods of a store that are called from afar; `open` and `close` frame them. */
export type StoreMethod = keyof ImageStore;

/** A pull's options without what cannot be sent; the abort and the progress are messages of their own. */
export type SentOptions = Pick<PullOptions, 'auth'>;

/** To the store's process. */
export type ToStore =
  | { kind: 'open'; options: ImageStoreOptions }
  | { kind: 'call'; id: number; method: StoreMethod; args: unknown[]; options: SentOptions }
  | { kind: 'abort'; id: number }
  /** The answer to one `more`: bytes, or the end, or why there will be none. */
  | { kind: 'chunk'; id: number; bytes?: Uint8Array; failure?: string };

/** A failure as it travels. Without a code it is none that a user can act on. */
export interface SentFailure {
  code?: ImageErrorCode | undefined;
  /** Of a failure of the system: a full disk, say. */
  errno?: string | undefined;
  message: string;
  stack?: string | undefined;
}

/** From the store's process. */
export type FromStore =
  | { kind: 'opened'; failure?: SentFailure }
  | { kind: 'result'; id: number; value: unknown }
  | { kind: 'failure'; id: number; failure: SentFailure }
  | { kind: 'progress'; id: number; progress: StoreProgress }
  /** An import wants the next bytes of its archive. */
  | { kind: 'more'; id: number };
