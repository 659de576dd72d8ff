/** The guest would not make the default view of a sandbox. Thrown by `start-steps.ts`, judged by `end-reasons.ts`. */

/** The view cannot be made in this image; the message names the path. */
export class ViewRefusedError extends Error {
  override name = 'ViewRefusedError';

  constructor(cause: Error) {
    super(
      `The default view of the sandbox cannot be made: ${cause.message}. Its paths must exist in the image, before the start command runs.`,
      { cause },
    );
  }
}
