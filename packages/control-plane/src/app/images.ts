/** Images: the node's store as Prime's clients list it and as ours manage it, and the builds that sandboxes wait for. */
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import type {
  ImageBuild,
  ImageDetails,
  ImageInfo,
  ImageList,
  ImageListItem,
  ListImagesQuery,
  PullImage,
} from '@sandlot/protocol';
import { findBuild } from '../store/image-builds.js';
import { AppError } from './app-error.js';
import type { AppContext, Caller } from './context.js';
import { fromNode } from './node-failure.js';

/** `GET /images`. */
export async function listImages(
  app: AppContext,
  caller: Caller,
  query: ListImagesQuery,
): Promise<ImageList> {
  const { offset = 0, limit = 50, search = '' } = query;
  const images = await listLocalImages(app, caller);
  const matching = images
    .filter((image) => image.reference.includes(search))
    .sort((left, right) => (left.createdAt < right.createdAt ? 1 : -1));
  const totalCount = matching.length;
  const data = matching.slice(offset, offset + limit).map(toListItem);
  return { data, totalCount, total_count: totalCount, offset, limit };
}

/** `GET /images/local`. */
export function listLocalImages(app: AppContext, { requestId }: Caller): Promise<ImageInfo[]> {
  return fromNode('list the images', () => app.fleet.imageNode(requestId).images());
}

/** `GET /images/local/{reference}`. */
export function inspectLocalImage(
  app: AppContext,
  { requestId }: Caller,
  reference: string,
): Promise<ImageDetails> {
  return fromNode(`inspect image ${reference}`, () => app.fleet.imageNode(requestId).image(reference));
}

/** `POST /images/local:pull`: progress as it comes. Credentials go through, and are not kept. */
export function pullLocalImage(
  app: AppContext,
  { requestId, signal }: Caller,
  pull: PullImage,
): Promise<IncomingMessage> {
  return fromNode(`pull image ${pull.reference}`, () =>
    app.fleet.imageNode(requestId).pullImage(pull, signal),
  );
}

/** `POST /images/local:import`: the archive goes through as it comes. */
export function importLocalImage(
  app: AppContext,
  { requestId, signal }: Caller,
  name: string,
  archive: Readable,
  length: string | undefined,
): Promise<IncomingMessage> {
  return fromNode(`import image ${name}`, () =>
    app.fleet.imageNode(requestId).importImage(name, archive, length, signal),
  );
}

/** `DELETE /images/local/{reference}`. */
export function removeLocalImage(
  app: AppContext,
  { requestId }: Caller,
  reference: string,
): Promise<{ removed: boolean }> {
  return fromNode(`remove image ${reference}`, () => app.fleet.imageNode(requestId).removeImage(reference));
}

/** `POST /images/local:prune`. */
export function pruneLocalImages(
  app: AppContext,
  { requestId }: Caller,
): Promise<{ removed: string[]; freedBytes: number }> {
  return fromNode('prune the images', () => app.fleet.imageNode(requestId).pruneImages());
}

/** `GET /images/build/{build_id}`. */
export async function getImageBuild(app: AppContext, id: string): Promise<ImageBuild> {
  const build = await findBuild(app.store.db, id);
  if (build === undefined)
    throw new AppError(
      'NOT_FOUND',
      `There is no build ${id}. Builds are named by pendingImageBuildId of a sandbox.`,
    );
  const createdAt = new Date(build.createdAt).toISOString();
  return {
    id,
    status: build.status,
    ...splitReference(build.image),
    errorMessage: build.error,
    createdAt,
    startedAt: createdAt,
    completedAt: build.completedAt === null ? null : new Date(build.completedAt).toISOString(),
    artifacts: [],
  };
}

function toListItem(image: ImageInfo): ImageListItem {
  return {
    id: image.digest,
    // The newest clients know no other kind.
    artifactType: 'VM_SANDBOX',
    ...splitReference(image.reference),
    status: 'COMPLETED',
    fullImagePath: image.reference,
    displayRef: image.reference,
    errorMessage: null,
    sizeBytes: image.rootfsBytes > 0 ? image.rootfsBytes : image.contentBytes,
    visibility: 'PUBLIC',
    ownerType: 'platform',
    createdAt: image.createdAt,
    completedAt: image.createdAt,
  };
}

/** Name and tag of a reference; a digest stands in for a tag that is missing. */
function splitReference(reference: string): { imageName: string; imageTag: string } {
  const [named = '', digest] = reference.split('@');
  const colon = named.lastIndexOf(':');
  const hasTag = colon > named.lastIndexOf('/');
  return {
    imageName: hasTag ? named.slice(0, colon) : named,
    imageTag: hasTag ? named.slice(colon + 1) : (digest ?? 'latest'),
  };
}
