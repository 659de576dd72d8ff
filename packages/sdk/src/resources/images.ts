/** `client.images`: what the node has, pulls and imports with progress, removal. */
import type { ImageDetails, ImageInfo, ImageProgress, RegistryAuth } from '@sandlot/protocol';
import { SandlotError, ValidationError } from '../errors.js';
import type { ApiClient, CallOptions } from '../http/api-client.js';

export type { ImageDetails, ImageInfo, ImageProgress, RegistryAuth };

/** What a pull or an import says: progress, and last the image. */
export type ImageEvent = ImageProgress | { done: ImageInfo };

/** A pull of many layers may be silent for long while a rootfs is built. */
const silenceMs = 900_000;

/** Calls about images. */
export class Images {
  constructor(private readonly api: ApiClient) {}

  /** All images of the node. */
  async list(options: CallOptions = {}): Promise<ImageInfo[]> {
    const answer = await this.api.call<{ images: ImageInfo[] }>({
      method: 'GET',
      path: '/images/local',
      ...options,
    });
    return answer.images;
  }

  /** One image, with its configuration and layers. */
  inspect(reference: string, options: CallOptions = {}): Promise<ImageDetails> {
    return this.api.call<ImageDetails>({
      method: 'GET',
      path: `/images/local/${encodeURIComponent(reference)}`,
      ...options,
    });
  }

  /**
   * Pulls an image and builds its rootfs. Ends with `{done}`; throws what failed. `auth` is for the
   * registry; the server uses it for this pull and does not keep it. Whoever may use the server may
   * then start sandboxes from the image.
   */
  pull(
    reference: string,
    options: CallOptions & { auth?: RegistryAuth | undefined } = {},
  ): AsyncGenerator<ImageEvent> {
    const { auth, ...call } = options;
    return progress(
      `pull of ${reference}`,
      this.api.lines({
        method: 'POST',
        path: '/images/local:pull',
        body: { reference, auth },
        idempotent: true,
        timeoutMs: silenceMs,
        ...call,
      }),
    );
  }

  /** Imports an archive (docker-archive, OCI layout tar, rootfs tar) under a name. */
  import(
    name: string,
    archive: AsyncIterable<Uint8Array>,
    options: CallOptions & { contentLength?: number | undefined } = {},
  ): AsyncGenerator<ImageEvent> {
    const { contentLength, ...call } = options;
    return progress(
      `import of ${name}`,
      this.api.lines({
        method: 'POST',
        path: '/images/local:import',
        query: { name },
        upload: { body: archive, contentLength },
        timeoutMs: silenceMs,
        ...call,
      }),
    );
  }

  /** Imports a local folder that holds an OCI layout. */
  async *importDirectory(
    name: string,
    folder: string,
    options: CallOptions = {},
  ): AsyncGenerator<ImageEvent> {
    const { packDirectory } = await import('../files/pack-directory.js');
    const { stat } = await import('node:fs/promises');
    // Any other folder would become an image too, as a root file system, and hardly what was meant.
    if (!(await stat(`${folder}/oci-layout`).catch(() => undefined))?.isFile())
      throw new ValidationError(
        `${folder} is not an OCI layout: there is no file oci-layout in it`,
        {
          code: 'INVALID_REQUEST',
          hint: 'Name the folder that has it; a root file system is imported as a tar.',
        },
        [],
      );
    const ignore = () => undefined;
    yield* this.import(name, packDirectory(folder, ignore, ignore), options);
  }

  /** Removes an image that nothing uses. */
  async remove(reference: string, options: CallOptions = {}): Promise<void> {
    await this.api.call({
      method: 'DELETE',
      path: `/images/local/${encodeURIComponent(reference)}`,
      ...options,
    });
  }

  /** Removes every image that nothing uses. */
  prune(options: CallOptions = {}): Promise<{ removed: string[]; freedBytes: number }> {
    return this.api.call({ method: 'POST', path: '/images/local:prune', idempotent: true, ...options });
  }
}

async function* progress(what: string, lines: AsyncGenerator<unknown>): AsyncGenerator<ImageEvent> {
  let finished = false;
  for await (const line of lines) {
    const event = line as ImageEvent & { error?: { code: string; message: string; hint?: string } };
    if (event.error) {
      const { code, message, hint } = event.error;
      throw new SandlotError(message, { code, ...(hint === undefined ? {} : { hint }) });
    }
    finished = 'done' in event;
    yield event;
  }
  if (!finished) {
    throw new SandlotError(`the ${what} broke off: the server ended the answer early`, {
      code: 'BAD_ANSWER',
    });
  }
}
