/**
 * Differences between a Sandlot sandbox and the plain VM that are right, and why. Read by main.ts. An entry that
 * matches nothing is reported, so that none outlives its cause. A fault is mended, not listed here.
 */
import type { Explanation } from './compare.js';

/** Of a sandbox without an init. */
export const explanations: readonly Explanation[] = [];
