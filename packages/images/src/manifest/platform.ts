/**
 * Which manifest of an index fits this machine. Pure. Called by the resolver.
 */
import type { Descriptor } from './manifest.js';

/** A platform in the words of the OCI specification. */
export interface Platform {
  os: string;
  architecture: string;
}

/** What guests on this host run: Linux on the host's own processor. */
export function hostPlatform(): Platform {
  const names: Record<string, string> = { x64: 'amd64', ia32: '386', ppc64: 'ppc64le' };
  return { os: 'linux', architecture: names[process.arch] ?? process.arch };
}

/** True for BuildKit's attestations and other things that stand in an index but are no images. */
export function isNoImage(descriptor: Descriptor): boolean {
  const { platform, annotations } = descriptor;
  return (
    annotations['vnd.docker.reference.type'] !== undefined ||
    descriptor.artifactType !== undefined ||
    (platform?.os === 'unknown' && platform.architecture === 'unknown')
  );
}

/**
 * The entries worth trying, best first: those that state our platform, then those that state none (their own
 * content tells). Of several variants the least demanding comes first: `amd64/v3` needs newer processors.
 */
export function candidates(manifests: Descriptor[], want: Platform): Descriptor[] {
  const images = manifests.filter((descriptor) => !isNoImage(descriptor));
  const stated = images.filter(
    ({ platform }) => platform?.os === want.os && platform.architecture === want.architecture,
  );
  stated.sort((a, b) => variantRank(a) - variantRank(b));
  const unstated = images.filter(({ platform }) => !platform?.architecture);
  return [...stated, ...unstated];
}

/** The platforms of an index for a message. */
export function listPlatforms(manifests: Descriptor[]): string {
  const names = manifests
    .filter((descriptor) => !isNoImage(descriptor))
    .map(({ platform }) => {
      if (!platform) return 'unstated';
      return [platform.os, platform.architecture, platform.variant].filter(Boolean).join('/');
    });
  return [...new Set(names)].slice(0, 20).join(', ') || 'none';
}

function variantRank(descriptor: Descriptor): number {
  return Number(/[0-9]+/.exec(descriptor.platform?.variant ?? '')?.[0] ?? 0);
}
