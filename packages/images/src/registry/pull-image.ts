/** Placeholder until the registry client lands in the next commit: replaced as a whole. */

import type { ResolvedImage } from '../manifest/resolve-image.js';
import { ImageError } from '../store.js';

/** Not there yet. */
export async function pullImage(_reference: unknown, _context: unknown): Promise<ResolvedImage> {
  throw new ImageError('unreachable', 'pulling from a registry is not built yet; import the image');
}
