/**
 * An OCI image layout (folder or tar) as a source of content, and the choice of one image in it.
 * Format: OCI image layout specification. Called by the import.
 */
import { createHash } from 'node:crypto';
import type { ImageLimits } from '../limits.js';
import { type Descriptor, parseManifest } from '../manifest/manifest.js';
import { candidates, isNoImage, type Platform } from '../manifest/platform.js';
import { canonicalReference, parseReference } from '../manifest/reference.js';
import type { ContentSource } from '../manifest/resolve-image.js';
import type { BlobStore } from '../store/blob-store.js';
import type { SharedRun } from '../store/single-flight.js';
import { ImageError } from '../store.js';
import { type Member, type MemberFiles, readSmallMember } from './member-files.js';

/** Reads blobs out of a layout into the store. */
export class LayoutSource implements ContentSource {
  constructor(
    private readonly members: MemberFiles,
    private readonly blobs: BlobStore,
    private readonly limits: ImageLimits,
    private readonly run: SharedRun,
    /** Notes a digest as in use before it is looked for. */
    private readonly pin: (digest: string) => void,
  ) {}

  async small(descriptor: Descriptor): Promise<Buffer> {
    if (descriptor.size > this.limits.maxManifestBytes) {
      throw new ImageError(
        'too-large',
        `${descriptor.digest} has ${descriptor.size} bytes, too many for a manifest`,
      );
    }
    await this.layer(descriptor);
    return (await this.blobs.readSmall(descriptor.digest))!;
  }

  async layer(descriptor: Descriptor): Promise<void> {
    this.pin(descriptor.digest);
    const { digest, size } = descriptor;
    await this.blobs.ensure(digest, size, { signal: this.run.signal }, async (file) => {
      const member = await this.members.find(`blobs/${digest.replace(':', '/')}`);
      if (!member) {
        throw new ImageError(
          'truncated',
          `the image layout lacks the blob ${digest}; export the image again`,
        );
      }
      const hash = createHash(digest.split(':')[0]!);
      for await (const chunk of limited(member, size)) {
        hash.update(chunk);
        await file.writeFile(chunk);
      }
      return `${digest.split(':')[0]}:${hash.digest('hex')}`;
    });
  }
}

/** One byte more than promised is enough to know that it is wrong. */
async function* limited(member: Member, size: number): AsyncGenerator<Buffer> {
  let total = 0;
  for await (const chunk of member.read()) {
    total += chunk.length;
    yield chunk;
    if (total > size) return;
  }
}

/**
 * Picks the image meant: the only one, or the one whose annotation carries the name or tag, or, where all entries
 * are one image for several platforms, the one for ours.
 */
export async function chooseFromLayout(
  members: MemberFiles,
  name: string,
  platform: Platform,
  limits: ImageLimits,
): Promise<Descriptor> {
  const member = await members.find('index.json');
  if (!member)
    throw new ImageError('invalid-manifest', 'there is no index.json: this is not an OCI image layout');
  const bytes = await readSmallMember(member, limits.maxManifestBytes, 'index.json');
  const index = parseManifest(bytes, 'index.json');
  if (index.kind !== 'index') throw new ImageError('invalid-manifest', 'index.json is not an image index');
  const images = index.manifests.filter((descriptor) => !isNoImage(descriptor));
  if (images.length === 1) return images[0]!;
  const named = images.filter((descriptor) => isNamed(descriptor, name));
  if (named.length === 1) return named[0]!;
  const names = new Set(images.map((image) => image.annotations['org.opencontainers.image.ref.name'] ?? ''));
  if (names.size === 1 || named.length > 1) {
    const best = candidates(named.length > 1 ? named : images, platform)[0];
    if (best) return best;
    throw new ImageError(
      'wrong-platform',
      `the layout has no image for ${platform.os}/${platform.architecture}`,
    );
  }
  throw new ImageError(
    'not-found',
    `the layout holds ${images.length} images (${[...names].slice(0, 10).join(', ') || 'none'}), and none of them is called ${name}; import it under the name or tag of one`,
  );
}

function isNamed(descriptor: Descriptor, name: string): boolean {
  const stated = [
    descriptor.annotations['org.opencontainers.image.ref.name'],
    descriptor.annotations['io.containerd.image.name'],
  ];
  const { tag } = parseReference(name);
  return stated.some((text) => text !== undefined && (text === tag || isSameReference(text, name)));
}

/** True if both mean the same image; a name that is no reference means nothing. */
export function isSameReference(a: string, b: string): boolean {
  try {
    return canonicalReference(parseReference(a)) === canonicalReference(parseReference(b));
  } catch (error) {
    if (error instanceof ImageError) return false;
    throw error;
  }
}
