/**
 * The commands for debugfs that repair what `mke2fs -d` drops: extended attributes, times beyond whole seconds,
 * `lost+found`. They are collected in a file while the tar stream is written, and run afterwards. Numbers and
 * escaped bytes only: nothing of an image is ever a word of a command by itself. Called by the rootfs build.
 */
import { chmod, type FileHandle, mkdir, open, writeFile } from 'node:fs/promises';
import { printable } from '../merge/resolve-path.js';
import type { TreeNode } from '../merge/tree.js';
import { type ChildUser, startChild } from '../process/child.js';
import { ImageError } from '../store.js';
import { BUILD_EPOCH_SECONDS, type Ext4Time } from './ext4-time.js';

/** Host-specific ones that no unpacker sets either. */
const IGNORED_XATTRS = new Set(['security.selinux', 'system.nfs4_acl']);
/** debugfs reads lines of at most 8191 bytes, and a byte takes four characters. */
const MAX_INLINE_VALUE = 1800;
const FLUSH_BYTES = 256 * 1024;

/** Collects and runs the commands. */
export class SecondPass {
  private text = '';
  private values = 0;
  private commands = 0;

  private constructor(
    private readonly file: FileHandle,
    private readonly valuesDir: string,
  ) {}

  /** Makes the command file `commands` and the folder `values` in a private folder. */
  static async create(folder: string): Promise<SecondPass> {
    const valuesDir = `${folder}/values`;
    await mkdir(valuesDir);
    // Whatever our umask is: another user's debugfs reads them.
    await chmod(valuesDir, 0o755);
    return new SecondPass(await open(`${folder}/commands`, 'wx+', 0o600), valuesDir);
  }

  /** A command as it is. */
  async add(command: string): Promise<void> {
    this.text += `${command}\n`;
    this.commands++;
    if (this.text.length > FLUSH_BYTES) await this.flush();
  }

  /** Sets the exact modification time. */
  async setTime(inode: number, time: Ext4Time): Promise<void> {
    await this.add(`set_inode_field <${inode}> mtime @0x${time.low.toString(16)}`);
    await this.add(`set_inode_field <${inode}> mtime_extra ${time.extra}`);
  }

  /** Sets the extended attributes that Linux would allow on this kind of file. */
  async setXattrs(inode: number, node: TreeNode, path: string): Promise<void> {
    // Sorted, so that the order of a layer's header does not show in the file system.
    const names = [...(node.xattrs?.keys() ?? [])].sort();
    let total = 0;
    for (const name of names) {
      if (!isKept(name, node)) continue;
      const value = node.xattrs!.get(name)!;
      total += value.length + name.length + 32;
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what debugfs cannot take
      if (total > 4096 || name.length > 255 || /["\x00-\x1f\x7f]/.test(name)) {
        throw new ImageError(
          'invalid-layer',
          `the extended attribute ${printable(name)} of ${printable(path)} does not fit into ext4 (4 KiB for all of a file, names of printable characters)`,
        );
      }
      if (value.length > MAX_INLINE_VALUE) {
        const number = this.values++;
        await writeFile(`${this.valuesDir}/${number}`, value);
        await chmod(`${this.valuesDir}/${number}`, 0o644);
        await this.add(`ea_set -f /proc/self/fd/4/${number} <${inode}> "${name}"`);
      } else {
        await this.add(`ea_set <${inode}> "${name}" ${escapeValue(value)}`);
      }
    }
  }

  /** Runs everything on the file system that is open as `image`. */
  async run(image: FileHandle, user: ChildUser | undefined, signal: AbortSignal | undefined): Promise<void> {
    await this.flush();
    if (this.commands === 0) return;
    const commands = await open(`/proc/self/fd/${this.file.fd}`, 'r');
    const values = await open(this.valuesDir, 'r');
    try {
      const child = startChild({
        argv: ['debugfs', '-w', '-f', '-', '/proc/self/fd/3'],
        user,
        stdio: [commands.fd, 'ignore', 'pipe', image.fd, values.fd],
        env: { SOURCE_DATE_EPOCH: `${BUILD_EPOCH_SECONDS}`, DEBUGFS_PAGER: '', PAGER: '' },
        signal,
      });
      const { code, signal: killedBy, stderr } = await child.exit;
      // debugfs reports failed commands on stderr only; its version is the one other thing that it writes there.
      const complaints = stderr.split('\n').filter((line) => line !== '' && !/^debugfs [0-9.]+ /.test(line));
      if (code !== 0 || complaints.length > 0) {
        throw new ImageError(
          /no space left/i.test(stderr) ? 'no-space' : 'build-failed',
          `debugfs could not complete the file system (${killedBy ?? `code ${code}`}): ${complaints.slice(0, 3).join('; ')}`,
        );
      }
    } finally {
      await commands.close();
      await values.close();
    }
  }

  /** Closes the command file; its folder belongs to the caller. */
  async close(): Promise<void> {
    await this.file.close();
  }

  private async flush(): Promise<void> {
    const text = this.text;
    this.text = '';
    await this.file.appendFile(Buffer.from(text, 'latin1'));
  }
}

/** The kernel refuses all others (xattr(7)): user attributes are for files and directories only. */
function isKept(name: string, node: TreeNode): boolean {
  if (IGNORED_XATTRS.has(name)) return false;
  if (name.startsWith('user.')) return node.kind === 'file' || node.kind === 'dir';
  if (name === 'system.posix_acl_access') return node.kind !== 'symlink';
  if (name === 'system.posix_acl_default') return node.kind === 'dir';
  return name.startsWith('security.') || name.startsWith('trusted.');
}

function escapeValue(value: Buffer): string {
  let text = '';
  for (const byte of value) {
    const isSafe =
      (byte >= 0x30 && byte <= 0x39) || (byte >= 0x41 && byte <= 0x5a) || (byte >= 0x61 && byte <= 0x7a);
    text += isSafe ? String.fromCharCode(byte) : `\\${byte.toString(8).padStart(3, '0')}`;
  }
  return text === '' ? '""' : text;
}
