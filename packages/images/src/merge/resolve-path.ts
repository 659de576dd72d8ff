/**
 * Paths of an image, resolved inside the merged tree only: an absolute link starts at the image's root, `..` stops
 * there, and the host's file system is never asked. The rules are those of umoci and runc (`SecureJoin`).
 * Called by `apply-entry.ts` for the parents of entries and of hard link targets.
 */
import { ImageError } from '../store.js';
import type { DirNode, ImageTree, TreeNode } from './tree.js';

/** As SecureJoin: more links than this in one path are a loop. */
const MAX_LINKS = 255;

/** The components of a path with `.`, `..` and empty ones resolved by their text alone. */
export function cleanComponents(path: string): string[] {
  const result: string[] = [];
  for (const part of path.split('/')) {
    if (part === '' || part === '.') continue;
    if (part === '..') result.pop();
    else result.push(part);
  }
  return result;
}

/** Where a path leads: the components after following every link; the last ones may not exist yet. */
export function followLinks(tree: ImageTree, components: string[]): string[] {
  const todo = components.slice().reverse();
  const done: string[] = [];
  // The nodes of `done`; undefined behind the first that does not exist or is no directory.
  const nodes: (DirNode | undefined)[] = [tree.root];
  let links = 0;
  while (todo.length > 0) {
    const part = todo.pop()!;
    if (part === '' || part === '.') continue;
    if (part === '..') {
      if (done.length > 0) {
        done.pop();
        nodes.pop();
      }
      continue;
    }
    const node: TreeNode | undefined = nodes[nodes.length - 1]?.children.get(part);
    if (node?.kind === 'symlink') {
      if (++links > MAX_LINKS) {
        throw new ImageError(
          'invalid-layer',
          `the path ${printable(components.join('/'))} of a layer runs into a loop of symbolic links`,
        );
      }
      if (node.target.startsWith('/')) {
        done.length = 0;
        nodes.length = 1;
      }
      for (const next of node.target.split('/').reverse()) todo.push(next);
      continue;
    }
    done.push(part);
    nodes.push(node?.kind === 'dir' ? node : undefined);
  }
  return done;
}

/** The directory at these components, or undefined if there is none. */
export function findDir(tree: ImageTree, components: string[]): DirNode | undefined {
  let current: DirNode = tree.root;
  for (const part of components) {
    const next = current.children.get(part);
    if (next?.kind !== 'dir') return undefined;
    current = next;
  }
  return current;
}

/** A byte string for a message: UTF-8 where it is, otherwise escaped. */
export function printable(bytes: string): string {
  const text = Buffer.from(bytes, 'latin1').toString('utf8');
  return JSON.stringify(text.length > 200 ? `${text.slice(0, 200)}…` : text);
}
