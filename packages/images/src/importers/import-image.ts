/**
 * The three imports: what was sent is recognised by its content (OCI layout, docker-archive, else a root file
 * system) and put into the blob store; the answer is a resolved image. Called by the store.
 */
import { rm } from 'node:fs/promises';
import { toImageError } from '../fault.js';
import type { ImageLimits } from '../limits.js';
import type { Descriptor } from '../manifest/manifest.js';
import type { Platform } from '../manifest/platform.js';
import { type ResolvedImage, resolveImage } from '../manifest/resolve-image.js';
import type { ChildUser } from '../process/child.js';
import type { BlobStore } from '../store/blob-store.js';
import type { StoreFiles } from '../store/files.js';
import type { SharedRun } from '../store/single-flight.js';
import { ImageError } from '../store.js';
import { chooseFromLayout, LayoutSource } from './layout-source.js';
import { FolderMembers, type MemberFiles } from './member-files.js';
import { type SpooledArchive, spoolArchive } from './spool.js';
import { readDockerManifest, storeDockerImage, storeRootfsImage } from './written-image.js';

/** What an import needs of the store. */
export interface ImportContext {
  blobs: BlobStore;
  files: StoreFiles;
  limits: ImageLimits;
  platform: Platform;
  user: ChildUser | undefined;
  run: SharedRun;
  /** Notes a digest as in use until the image is recorded. */
  pin(digest: string): void;
}

/** Imports a stream. */
export async function importArchiveImage(
  archive: AsyncIterable<Uint8Array>,
  name: string,
  context: ImportContext,
): Promise<ResolvedImage> {
  const folder = await context.files.temporaryFolder('import');
  let spooled: SpooledArchive | undefined;
  try {
    spooled = await spoolArchive(archive, {
      folder,
      limits: context.limits,
      user: context.user,
      signal: context.run.signal,
      onReceived: (bytes) =>
        context.run.onProgress({ stage: 'download', doneBytes: bytes, totalBytes: 0, message: 'receiving' }),
    });
    context.run.onProgress({ stage: 'read', doneBytes: 0, totalBytes: spooled.size });
    return await importSpooled(spooled, name, context);
  } catch (error) {
    throw toImageError(error, `importing ${name}`);
  } finally {
    await spooled?.file.close();
    await rm(folder, { recursive: true, force: true });
  }
}

/** Imports an OCI layout folder. */
export async function importFolderImage(
  folder: string,
  name: string,
  context: ImportContext,
): Promise<ResolvedImage> {
  try {
    const members = new FolderMembers(folder);
    if (!(await members.find('oci-layout')) || !(await members.find('index.json'))) {
      throw new ImageError(
        'not-found',
        `${folder} is not an OCI image layout: it has no oci-layout and index.json`,
      );
    }
    return await importLayout(members, name, context);
  } catch (error) {
    throw toImageError(error, `importing ${folder}`);
  }
}

async function importSpooled(
  spooled: SpooledArchive,
  name: string,
  context: ImportContext,
): Promise<ResolvedImage> {
  const { members } = spooled;
  if ((await members.find('oci-layout')) && (await members.find('index.json'))) {
    return importLayout(members, name, context);
  }
  const images = await readDockerManifest(members, context.limits);
  if (images) return finish(await storeDockerImage(images, members, name, context), members, name, context);
  context.pin(spooled.digest);
  await context.blobs.adopt(spooled.path, spooled.digest);
  const { digest, size } = spooled;
  return finish(await storeRootfsImage({ digest, size }, context.platform, context), members, name, context);
}

async function importLayout(
  members: MemberFiles,
  name: string,
  context: ImportContext,
): Promise<ResolvedImage> {
  const top = await chooseFromLayout(members, name, context.platform, context.limits);
  return finish(top, members, name, context);
}

function finish(
  top: Descriptor,
  members: MemberFiles,
  name: string,
  context: ImportContext,
): Promise<ResolvedImage> {
  const { blobs, limits, run, platform } = context;
  const source = new LayoutSource(members, blobs, limits, run, (digest) => context.pin(digest));
  return resolveImage(top, source, platform, limits, name);
}
