/**
 * Codes of the image store's failures, which travel in the progress stream of a pull or import when the answer has
 * begun already. Thrown by `images`, passed on by the node agent, turned into exit codes by the CLI.
 */

/** Every code is one thing that a user can act on; the value is the exit code of the CLI (sysexits.h where one fits). */
export const imageErrorExitCodes = {
  'invalid-reference': 64,
  'not-found': 66,
  unauthorized: 77,
  unreachable: 69,
  'rate-limited': 75,
  'insecure-registry': 77,
  'wrong-platform': 65,
  'digest-mismatch': 65,
  truncated: 65,
  'unknown-compression': 65,
  'unsupported-media-type': 65,
  'invalid-manifest': 65,
  'invalid-layer': 65,
  'too-large': 65,
  'no-space': 75,
  'in-use': 73,
  'build-failed': 70,
  /** The store was closed meanwhile. */
  aborted: 75,
} as const;

/** One of them. */
export type ImageErrorCode = keyof typeof imageErrorExitCodes;

/** Whether a code is the image store's word about an image. */
export function isImageErrorCode(code: string): code is ImageErrorCode {
  return Object.hasOwn(imageErrorExitCodes, code);
}
