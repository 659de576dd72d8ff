/** Images of the node, for the control plane. Pulls and imports leave an image that is ready to start, and answer with a stream of progress. */
import { type ImageStore, type StoredImage, type StoreProgress, sparingly } from '@sandlot/images';
import type { ImageDetails, ImageInfo, PullImage } from '@sandlot/protocol';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { failureOf } from '../failures.js';
import type { ServerParts } from '../server-parts.js';

type Listed = StoredImage & { holders: number; contentBytes: number };

/** Progress lines are at most this often, ms. */
const progressIntervalMs = 200;

/** Adds the routes. */
export function imageRoutes(app: FastifyInstance, { images, log }: ServerParts): void {
  // Archives are read as they come: no parser may collect them.
  app.addContentTypeParser(['application/octet-stream', 'application/x-tar'], (_request, payload, done) =>
    done(null, payload),
  );

  app.get('/v1/images', async () => ({ images: (await images.list()).map(infoOf) }));

  app.get<{ Params: { reference: string } }>('/v1/images/:reference', async (request) =>
    detailsOf(await find(images, request.params.reference)),
  );

  app.post<{ Body: PullImage }>('/v1/images::pull', (request, reply) => {
    const { reference, auth } = request.body;
    return streamProgress(request, reply, images, (onProgress, signal) =>
      images.pull(reference, { onProgress, signal, ...(auth ? { auth } : {}) }),
    );
  });

  app.post<{ Querystring: { name?: string }; Body: AsyncIterable<Uint8Array> }>(
    '/v1/images::import',
    (request, reply) => {
      const { name } = request.query;
      if (!name) throw Object.assign(new Error('name: is missing'), { statusCode: 422 });
      log.info({ name }, 'importing an image');
      return streamProgress(request, reply, images, (onProgress, signal) =>
        images.importArchive(request.body, name, { onProgress, signal }),
      );
    },
  );

  app.delete<{ Params: { reference: string } }>('/v1/images/:reference', async (request) => {
    await images.remove(request.params.reference);
    return { removed: true };
  });

  app.post('/v1/images::prune', () => images.prune());
}

async function streamProgress(
  request: FastifyRequest,
  reply: FastifyReply,
  images: ImageStore,
  work: (onProgress: (progress: StoreProgress) => void, signal: AbortSignal) => Promise<StoredImage>,
): Promise<void> {
  reply.hijack();
  const { raw } = reply;
  const abort = new AbortController();
  raw.once('close', () => abort.abort(new Error('the client went away')));
  raw.writeHead(200, { 'content-type': 'application/x-ndjson' });
  raw.flushHeaders();
  const send = (line: unknown) => raw.write(`${JSON.stringify(line)}\n`);
  const onProgress = sparingly(progressIntervalMs, send);
  try {
    const image = await work(onProgress, abort.signal);
    // The user waits here for what the first create would otherwise wait for.
    await images.prepare(image.reference, { onProgress, signal: abort.signal });
    send({ done: infoOf(await find(images, image.reference)) });
  } catch (error) {
    request.raw.resume();
    send({ error: failureOf(error).body });
  }
  raw.end();
}

async function find(images: ImageStore, reference: string): Promise<Listed> {
  const image = await images.get(reference);
  if (!image) {
    throw Object.assign(
      new Error(
        `there is no image ${reference} here; \`sandlot image ls\` lists them, \`sandlot image pull\` gets one`,
      ),
      {
        statusCode: 404,
      },
    );
  }
  return image;
}

function infoOf(image: Listed): ImageInfo {
  return {
    reference: image.reference,
    digest: image.digest,
    rootfsBytes: image.rootfsBytes,
    contentBytes: image.contentBytes,
    createdAt: image.createdAt,
    inUseBy: image.holders,
    labels: image.config.labels,
  };
}

function detailsOf(image: Listed): ImageDetails {
  const { env, user, workingDir, entrypoint, cmd, exposedPorts } = image.config;
  return {
    ...infoOf(image),
    config: { env, user, workingDir, entrypoint, cmd, exposedPorts },
    layers: image.layers,
    platform: image.platform,
  };
}
