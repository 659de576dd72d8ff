/**
 * Whiteouts: entries of a layer that remove what lower layers have. They never remove what the same layer has
 * written, in whatever order its entries stand. Called by `apply-entry.ts`.
 */
import type { DirNode, TreeNode } from './tree.js';

/** Names that begin so are not files. */
export const WHITEOUT_PREFIX = '.wh.';
const OPAQUE = '.wh..wh..opq';
const AUFS_PREFIX = '.wh..wh.';

/** True for what aufs keeps for itself (`.wh..wh.plnk`, …) and anything below: not content, as Docker has it. */
export function isAufsMetadata(parents: string[], name: string): boolean {
  if (name.startsWith(AUFS_PREFIX) && name !== OPAQUE) return true;
  return parents.some((part) => part.startsWith(AUFS_PREFIX));
}

/** Applies the whiteout called `name` that stands in `dir`. */
export function applyWhiteout(dir: DirNode, name: string): void {
  if (name === OPAQUE) {
    removeUntouched(dir);
    return;
  }
  const target = name.slice(WHITEOUT_PREFIX.length);
  const node = dir.children.get(target);
  if (!node) return;
  if (dir.touched?.has(target)) {
    if (node.kind === 'dir') removeUntouched(node);
  } else {
    dir.children.delete(target);
  }
}

/** Removes everything below `dir` except what the current layer wrote. */
function removeUntouched(dir: DirNode): void {
  // A stack of our own: layers may nest directories deeper than the call stack goes.
  const stack: DirNode[] = [dir];
  while (stack.length > 0) {
    const current = stack.pop()!;
    for (const [name, node] of current.children as Map<string, TreeNode>) {
      if (!current.touched?.has(name)) current.children.delete(name);
      else if (node.kind === 'dir') stack.push(node);
    }
  }
}
