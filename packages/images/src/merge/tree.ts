/**
 * The merged file tree of an image, in memory only: what each path is and where its content lies. Built by
 * `apply-entry.ts` layer by layer, read by the rootfs plan and emitter. Names are byte strings.
 *
 * A hard link is one node under several names. A directory has one parent only.
 */
import type { SparseSegments } from '../tar/tar-entry.js';

/** What all kinds of nodes have. */
export interface NodeMetadata {
  mode: number;
  uid: number;
  gid: number;
  mtimeSeconds: number;
  mtimeNanoseconds: number;
  xattrs: Map<string, Buffer> | undefined;
}

/** What all nodes have that may stand under several names. */
export interface LinkableMetadata extends NodeMetadata {
  /** True once a hard link was made to it. */
  isLinked?: true;
}

/** A regular file; its stored bytes begin at `offset` in the uncompressed layer number `layer`. */
export interface FileNode extends LinkableMetadata {
  kind: 'file';
  size: number;
  layer: number;
  offset: number;
  sparse: SparseSegments | undefined;
}

/** A symbolic link. */
export interface SymlinkNode extends LinkableMetadata {
  kind: 'symlink';
  target: string;
}

/** A device or FIFO. */
export interface SpecialNode extends LinkableMetadata {
  kind: 'char' | 'block' | 'fifo';
  deviceMajor: number;
  deviceMinor: number;
}

/** A directory. */
export interface DirNode extends NodeMetadata {
  kind: 'dir';
  /** Itself in the root. */
  parent: DirNode;
  name: string;
  children: Map<string, TreeNode>;
  /** Names in it that the layer being applied has written; see {@link ImageTree.endLayer}. */
  touched: Set<string> | undefined;
}

/** Anything a path can be. */
export type TreeNode = FileNode | SymlinkNode | SpecialNode | DirNode;

/** The tree and the record of what the current layer touched, which whiteouts of that layer must not remove. */
export class ImageTree {
  readonly root: DirNode;
  private touchedDirs: DirNode[] = [];

  constructor() {
    // As umoci has it where no layer says anything about the root.
    this.root = newDir({
      mode: 0o755,
      uid: 0,
      gid: 0,
      mtimeSeconds: 0,
      mtimeNanoseconds: 0,
      xattrs: undefined,
    });
  }

  /** Makes a directory inside `parent`, replacing whatever had the name. */
  addDir(parent: DirNode, name: string, metadata: NodeMetadata): DirNode {
    const dir = newDir(metadata);
    dir.parent = parent;
    dir.name = name;
    parent.children.set(name, dir);
    return dir;
  }

  /** Notes that the current layer wrote `name` in `dir`, and so every directory above. */
  touch(dir: DirNode, name: string): void {
    let current = dir;
    let child = name;
    for (;;) {
      if (!current.touched) {
        current.touched = new Set();
        this.touchedDirs.push(current);
      }
      if (current.touched.has(child)) return;
      current.touched.add(child);
      if (current === this.root) return;
      child = current.name;
      current = current.parent;
    }
  }

  /** Forgets what was touched: the next layer may remove all of it. */
  endLayer(): void {
    for (const dir of this.touchedDirs) dir.touched = undefined;
    this.touchedDirs = [];
  }
}

function newDir(metadata: NodeMetadata): DirNode {
  const dir = {
    kind: 'dir',
    ...metadata,
    name: '',
    children: new Map(),
    touched: undefined,
  } as unknown as DirNode;
  dir.parent = dir;
  return dir;
}
