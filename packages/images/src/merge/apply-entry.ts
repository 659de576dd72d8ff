/**
 * Applies the entries of one layer to the merged tree by the rules of the OCI image specification ("Image Layer
 * Filesystem Changeset"), with umoci's reading where that leaves room. Called once per entry, layers in order.
 */
import type { ImageLimits } from '../limits.js';
import { ImageError } from '../store.js';
import type { TarEntry } from '../tar/tar-entry.js';
import { cleanComponents, findDir, followLinks, printable } from './resolve-path.js';
import type { DirNode, ImageTree, NodeMetadata } from './tree.js';
import { applyWhiteout, isAufsMetadata, WHITEOUT_PREFIX } from './whiteout.js';

/** ext4 and every file system in use: bytes of one name, of a whole path, of a link's target. */
const MAX_NAME = 255;
const MAX_PATH = 4095;

/** Counts and sums over all layers, checked against the limits. */
export interface MergeTotals {
  entries: number;
  bytes: number;
}

/** Applies one entry of layer number `layer`. Throws `invalid-layer` or `too-large`. */
export function applyEntry(
  tree: ImageTree,
  entry: TarEntry,
  layer: number,
  totals: MergeTotals,
  limits: ImageLimits,
): void {
  count(entry, totals, limits);
  const components = cleanComponents(entry.name);
  if (entry.name.length > MAX_PATH || components.some((part) => part.length > MAX_NAME)) {
    throw invalid(entry, 'its name is longer than Linux allows (255 bytes a part, 4095 in all)');
  }
  if (components.length === 0) {
    if (entry.type !== 'dir') throw invalid(entry, 'it would replace the root directory by something else');
    Object.assign(tree.root, metadataOf(entry));
    return;
  }
  const name = components.pop()!;
  if (isAufsMetadata(components, name)) return;
  const parentPath = followLinks(tree, components);
  if (name.startsWith(WHITEOUT_PREFIX)) {
    const dir = findDir(tree, parentPath);
    if (name === WHITEOUT_PREFIX || name === '.wh..' || name === '.wh...') {
      throw invalid(entry, 'it is a whiteout of no file');
    }
    if (dir) applyWhiteout(dir, name);
    return;
  }
  const parent = makeParents(tree, parentPath, entry);
  if (entry.type === 'hardlink') placeHardLink(tree, parent, name, entry);
  else place(tree, parent, name, entry, layer);
  tree.touch(parent, name);
}

function place(tree: ImageTree, parent: DirNode, name: string, entry: TarEntry, layer: number): void {
  const metadata = metadataOf(entry);
  switch (entry.type) {
    case 'dir': {
      const existing = parent.children.get(name);
      if (existing?.kind === 'dir') Object.assign(existing, metadata);
      else tree.addDir(parent, name, metadata);
      return;
    }
    case 'file':
      parent.children.set(name, {
        kind: 'file',
        ...metadata,
        size: entry.size,
        layer,
        offset: entry.dataOffset,
        sparse: entry.sparse,
      });
      return;
    case 'symlink':
      if (entry.linkName === '' || entry.linkName.length > MAX_PATH) {
        throw invalid(entry, 'the target of the symbolic link is empty or longer than 4095 bytes');
      }
      parent.children.set(name, { kind: 'symlink', ...metadata, mode: 0o777, target: entry.linkName });
      return;
    case 'hardlink':
      // Has a function of its own, which needs no metadata: the target keeps what it has.
      return;
    default:
      parent.children.set(name, {
        kind: entry.type,
        ...metadata,
        deviceMajor: entry.deviceMajor,
        deviceMinor: entry.deviceMinor,
      });
  }
}

function placeHardLink(tree: ImageTree, parent: DirNode, name: string, entry: TarEntry): void {
  const components = cleanComponents(entry.linkName);
  const targetName = components.pop() ?? '';
  const targetPath = followLinks(tree, components);
  // A file that was archived twice is a link to itself the second time.
  if (targetName === name && findDir(tree, targetPath) === parent && parent.children.has(name)) return;
  // The old file goes first, and with it a target that lay inside it, or was reached through it.
  parent.children.delete(name);
  const node = findDir(tree, followLinks(tree, components))?.children.get(targetName);
  if (!node) {
    throw invalid(entry, `it is a hard link to ${printable(entry.linkName)}, which does not exist`);
  }
  if (node.kind === 'dir') {
    throw invalid(entry, `it is a hard link to the directory ${printable(entry.linkName)}`);
  }
  node.isLinked = true;
  parent.children.set(name, node);
}

/** Directories that no layer describes are root's, 0755, with the time of the entry that needed them. */
function makeParents(tree: ImageTree, path: string[], entry: TarEntry): DirNode {
  let current = tree.root;
  // Behind a symbolic link a short name can mean a path that no program could open.
  if (path.reduce((sum, part) => sum + part.length + 1, 0) > MAX_PATH) {
    throw invalid(entry, 'behind symbolic links its path is longer than 4095 bytes');
  }
  for (const part of path) {
    const next = current.children.get(part);
    if (next?.kind === 'dir') {
      current = next;
    } else if (next) {
      throw invalid(entry, `${printable(path.join('/'))} is not a directory`);
    } else {
      if (part.length > MAX_NAME) throw invalid(entry, 'a directory that it needs has too long a name');
      const { mtimeSeconds, mtimeNanoseconds } = entry;
      const metadata = { mode: 0o755, uid: 0, gid: 0, mtimeSeconds, mtimeNanoseconds, xattrs: undefined };
      current = tree.addDir(current, part, metadata);
    }
  }
  return current;
}

function metadataOf(entry: TarEntry): NodeMetadata {
  return {
    mode: entry.mode,
    uid: entry.uid,
    gid: entry.gid,
    mtimeSeconds: entry.mtimeSeconds,
    mtimeNanoseconds: entry.mtimeNanoseconds,
    xattrs: entry.xattrs,
  };
}

function count(entry: TarEntry, totals: MergeTotals, limits: ImageLimits): void {
  totals.entries++;
  totals.bytes += entry.size;
  if (totals.entries > limits.maxEntries) {
    throw new ImageError('too-large', `the image has more than ${limits.maxEntries} files, the limit here`);
  }
  if (totals.bytes > limits.maxImageBytes) {
    throw new ImageError(
      'too-large',
      `the files of the image are more than ${limits.maxImageBytes} bytes, the limit here`,
    );
  }
}

function invalid(entry: TarEntry, why: string): ImageError {
  return new ImageError(
    'invalid-layer',
    `the layer entry ${printable(entry.name)} cannot be applied: ${why}`,
  );
}
