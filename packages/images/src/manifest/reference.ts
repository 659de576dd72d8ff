/**
 * Image references with the errors of this package. The grammar is the protocol's, which the control plane uses
 * too. Called by the store for every name that a user gives or an archive holds.
 */
import { type ImageReference, ImageReferenceError, parseImageReference } from '@sandlot/protocol';
import { ImageError } from '../store.js';

export {
  canonicalImageReference as canonicalReference,
  defaultRegistry as DEFAULT_REGISTRY,
  type ImageReference,
  isImageDigest as isDigest,
} from '@sandlot/protocol';

/** Parses; throws `invalid-reference`. */
export function parseReference(text: string): ImageReference {
  try {
    return parseImageReference(text);
  } catch (cause) {
    if (!(cause instanceof ImageReferenceError)) throw cause;
    throw new ImageError('invalid-reference', cause.message, { cause });
  }
}
