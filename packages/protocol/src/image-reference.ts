/**
 * Image references as Docker reads them: `python` is `docker.io/library/python:latest`, the first part is a
 * registry if it has a dot, a port or is `localhost`, and a digest beats a tag. Grammar: the OCI distribution
 * specification and Docker's `distribution/reference`. Pure. Called by the control plane for every create, and by the image store.
 */

/** Text that is no image reference; the message says why and what one looks like. */
export class ImageReferenceError extends Error {
  override readonly name = 'ImageReferenceError';
}

/** A parsed reference; `toString` gives its canonical form. */
export interface ImageReference {
  registry: string;
  repository: string;
  /** Undefined if a digest is given. */
  tag: string | undefined;
  digest: string | undefined;
}

/** Where names without a registry live. */
export const defaultRegistry = 'docker.io';

const componentPattern = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$/;
const tagPattern = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const hostPattern =
  /^(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?$/;
const digestPattern = /^(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$/;
const maxLength = 512;

/** True for `sha256:…` and `sha512:…` of the right length. */
export function isImageDigest(text: string): boolean {
  return digestPattern.test(text);
}

/** Parses; throws {@link ImageReferenceError}. */
export function parseImageReference(text: string): ImageReference {
  if (text === '' || text.length > maxLength) throw invalid(text, 'it is empty or too long');
  if (text.includes('://')) throw invalid(text, 'it must not be a URL, leave out the scheme');
  const at = text.indexOf('@');
  const digest = at === -1 ? undefined : text.slice(at + 1);
  if (digest !== undefined && !isImageDigest(digest)) throw invalid(text, 'the digest after @ is not valid');
  let name = at === -1 ? text : text.slice(0, at);
  const colon = name.lastIndexOf(':');
  let tag: string | undefined;
  if (colon > name.lastIndexOf('/')) {
    tag = name.slice(colon + 1);
    name = name.slice(0, colon);
    if (!tagPattern.test(tag)) throw invalid(text, `the tag ${JSON.stringify(tag)} is not valid`);
  }
  const slash = name.indexOf('/');
  const first = slash === -1 ? '' : name.slice(0, slash);
  const hasRegistry = first === 'localhost' || /[.:A-Z]/.test(first);
  let registry = hasRegistry ? first : defaultRegistry;
  let repository = hasRegistry ? name.slice(slash + 1) : name;
  if (registry === 'index.docker.io' || registry === 'registry-1.docker.io') registry = defaultRegistry;
  if (registry === defaultRegistry && !repository.includes('/')) repository = `library/${repository}`;
  if (!hostPattern.test(registry))
    throw invalid(text, `the registry ${JSON.stringify(registry)} is not a host name`);
  const bad = repository.split('/').find((part) => !componentPattern.test(part));
  if (bad !== undefined) {
    throw invalid(
      text,
      /[A-Z]/.test(bad) ? 'the name must be lowercase' : `the part ${JSON.stringify(bad)} is not valid`,
    );
  }
  return { registry, repository, tag: digest ? undefined : (tag ?? 'latest'), digest };
}

/** The one spelling under which the store knows it. */
export function canonicalImageReference(reference: ImageReference): string {
  const name = `${reference.registry}/${reference.repository}`;
  return reference.digest ? `${name}@${reference.digest}` : `${name}:${reference.tag}`;
}

function invalid(text: string, why: string): ImageReferenceError {
  return new ImageReferenceError(
    `${JSON.stringify(text.slice(0, 120))} is not an image reference: ${why}; use NAME, NAME:TAG, NAME@sha256:… or REGISTRY/NAME:TAG`,
  );
}
