/**
 * Writes a merged tree as one tar stream for `mke2fs -d -`: parents before children, names in byte order, every
 * inode once and further names as hard links. mke2fs numbers inodes in the order in which it meets them, from 12 on;
 * the second pass and the check after the build rely on that. Called by the rootfs build.
 */
import type { Writable } from 'node:stream';
import type { DirNode, FileNode, ImageTree, LinkableMetadata, TreeNode } from '../merge/tree.js';
import { encodeTarHeader, type TarHeaderFields, tarPadding } from '../tar/tar-writer.js';
import type { ContentReader } from './content-reader.js';
import { BUILD_EPOCH_SECONDS, toExt4Time } from './ext4-time.js';
import { InodeLedger } from './inode-ledger.js';
import type { SecondPass } from './second-pass.js';

const ROOT_INODE = 2;
const LOST_FOUND = 'lost+found';
const LOST_FOUND_INODE = 11;
const BUFFER_BYTES = 1 << 20;
const TYPE_FLAGS = { file: '0', symlink: '2', char: '3', block: '4', dir: '5', fifo: '6' } as const;

interface Frame {
  dir: DirNode;
  prefix: string;
  names: string[];
  next: number;
}

/** Emits one tree once. */
export class TreeEmitter {
  /** What every inode should look like afterwards. */
  readonly ledger = new InodeLedger();
  private nextInode = LOST_FOUND_INODE + 1;
  private readonly firstPaths = new Map<TreeNode, string>();
  private buffer = Buffer.allocUnsafe(BUFFER_BYTES);
  private filled = 0;

  constructor(
    private readonly tree: ImageTree,
    private readonly content: ContentReader,
    private readonly output: Writable,
    private readonly secondPass: SecondPass,
    private readonly onBytes: (bytes: number) => void,
  ) {}

  /** Writes everything and ends the output. Rejects if the output is closed by the other side. */
  async run(): Promise<void> {
    await this.emitNode('.', this.tree.root, ROOT_INODE);
    const stack: Frame[] = [frameOf(this.tree.root, '')];
    while (stack.length > 0) {
      const frame = stack[stack.length - 1]!;
      const name = frame.names[frame.next++];
      if (name === undefined) {
        stack.pop();
        continue;
      }
      const node = frame.dir.children.get(name)!;
      const path = frame.prefix + name;
      await this.emitChild(path, node);
      if (node.kind === 'dir') stack.push(frameOf(node, `${path}/`));
    }
    await this.settleLostFound();
    await this.put(Buffer.alloc(1024));
    await this.flush();
    this.output.end();
  }

  private async emitChild(ownPath: string, node: TreeNode): Promise<void> {
    // mke2fs has made this directory already; anything else of that name has to wait under another.
    const isLostFound = ownPath === LOST_FOUND;
    if (isLostFound && node.kind === 'dir') return this.emitNode(ownPath, node, LOST_FOUND_INODE);
    const path = isLostFound ? this.strangerName() : ownPath;
    const isLinked = (node as LinkableMetadata).isLinked === true;
    const first = isLinked ? this.firstPaths.get(node) : undefined;
    if (first !== undefined) {
      // mke2fs gives the inode whatever owner, mode and time this entry states: the same again.
      await this.put(
        encodeTarHeader({ ...this.headerOf(path, node), typeFlag: '1', linkName: first, size: 0 }),
      );
      return;
    }
    if (isLinked) this.firstPaths.set(node, path);
    await this.emitNode(path, node, this.nextInode++);
  }

  private async emitNode(path: string, node: TreeNode, inode: number): Promise<void> {
    await this.put(encodeTarHeader(this.headerOf(path, node)));
    if (node.kind === 'file') await this.emitContent(node);
    const time = toExt4Time(node.mtimeSeconds, node.mtimeNanoseconds);
    if (!time.isPlain) await this.secondPass.setTime(inode, time);
    if (node.xattrs) await this.secondPass.setXattrs(inode, node, path);
    this.ledger.note(inode, node);
  }

  private headerOf(path: string, node: TreeNode): TarHeaderFields {
    const time = toExt4Time(node.mtimeSeconds, node.mtimeNanoseconds);
    const seconds = Math.max(0, Math.min(time.seconds, BUILD_EPOCH_SECONDS));
    const header: TarHeaderFields = {
      typeFlag: TYPE_FLAGS[node.kind],
      name: path,
      mode: node.mode,
      uid: node.uid,
      gid: node.gid,
      size: node.kind === 'file' ? node.size : 0,
      mtimeSeconds: seconds,
      changeTimeSeconds: seconds,
    };
    if (node.kind === 'symlink') header.linkName = node.target;
    else if (node.kind === 'char' || node.kind === 'block') {
      header.deviceMajor = node.deviceMajor;
      header.deviceMinor = node.deviceMinor;
    }
    return header;
  }

  private async emitContent(node: FileNode): Promise<void> {
    if (node.sparse) {
      let position = 0;
      let stored = node.offset;
      for (let i = 0; i < node.sparse.length; i += 2) {
        await this.putZeros(node.sparse[i]! - position);
        await this.putStored(node.layer, stored, node.sparse[i + 1]!);
        stored += node.sparse[i + 1]!;
        position = node.sparse[i]! + node.sparse[i + 1]!;
      }
      await this.putZeros(node.size - position);
    } else {
      await this.putStored(node.layer, node.offset, node.size);
    }
    await this.putZeros(tarPadding(node.size));
  }

  private async putStored(layer: number, offset: number, length: number): Promise<void> {
    for (let done = 0; done < length; ) {
      if (this.filled === BUFFER_BYTES) await this.flush();
      const size = Math.min(length - done, BUFFER_BYTES - this.filled);
      await this.content.copy(layer, offset + done, size, this.buffer, this.filled);
      this.filled += size;
      done += size;
    }
  }

  private async putZeros(length: number): Promise<void> {
    for (let done = 0; done < length; ) {
      if (this.filled === BUFFER_BYTES) await this.flush();
      const size = Math.min(length - done, BUFFER_BYTES - this.filled);
      this.buffer.fill(0, this.filled, this.filled + size);
      this.filled += size;
      done += size;
    }
  }

  private async put(bytes: Buffer): Promise<void> {
    for (let done = 0; done < bytes.length; ) {
      if (this.filled === BUFFER_BYTES) await this.flush();
      const size = Math.min(bytes.length - done, BUFFER_BYTES - this.filled);
      bytes.copy(this.buffer, this.filled, done, done + size);
      this.filled += size;
      done += size;
    }
  }

  /** Waits until the other side has taken the bytes: the buffer is used again. */
  private async flush(): Promise<void> {
    const bytes = this.buffer.subarray(0, this.filled);
    this.filled = 0;
    await new Promise<void>((resolve, reject) => {
      this.output.write(bytes, (error) => (error ? reject(error) : resolve()));
    });
    this.onBytes(bytes.length);
  }

  /** An image's own `lost+found` that is no directory waits under this name until mke2fs's is gone. */
  private strangerName(): string {
    let name = '.lost+found';
    while (this.tree.root.children.has(name)) name += '.';
    return name;
  }

  private async settleLostFound(): Promise<void> {
    const own = this.tree.root.children.get(LOST_FOUND);
    if (own?.kind === 'dir') return;
    await this.secondPass.add(`rmdir ${LOST_FOUND}`);
    if (!own) return;
    // Neither command of debugfs touches the link count: together they are a rename.
    await this.secondPass.add(`link ${this.strangerName()} ${LOST_FOUND}`);
    await this.secondPass.add(`unlink ${this.strangerName()}`);
  }
}

function frameOf(dir: DirNode, prefix: string): Frame {
  return { dir, prefix, names: [...dir.children.keys()].sort(), next: 0 };
}
