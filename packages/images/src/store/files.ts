/**
 * The folders of the image store, and writing into them so that a crash leaves the old file, the new one, or none.
 * Used by everything in `store/`.
 *
 *   blobs/<algorithm>/<hex>     content by digest: layers, manifests, configs
 *   images/<algorithm>-<hex>.json  one record per manifest
 *   refs/<hash>.json            a name and the manifest that it means
 *   rootfs/<key>.ext4, .json    built file systems and what they were built from
 *   holds/<hash>.json           who uses what
 *   tmp/                        work in progress; emptied when the store is opened
 */
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';

/** Paths of one store. */
export class StoreFiles {
  constructor(readonly root: string) {}

  /** Makes what is missing. */
  async prepare(): Promise<void> {
    for (const folder of ['blobs/sha256', 'blobs/sha512', 'images', 'refs', 'rootfs', 'holds', 'tmp']) {
      await mkdir(join(this.root, folder), { recursive: true, mode: 0o755 });
    }
  }

  blob(digest: string): string {
    const [algorithm, hex] = digest.split(':');
    return join(this.root, 'blobs', algorithm!, hex!);
  }

  image(digest: string): string {
    return join(this.root, 'images', `${digest.replace(':', '-')}.json`);
  }

  ref(reference: string): string {
    return join(this.root, 'refs', `${hashName(reference)}.json`);
  }

  hold(holder: string): string {
    return join(this.root, 'holds', `${hashName(holder)}.json`);
  }

  rootfs(key: string): string {
    return join(this.root, 'rootfs', `${key}.ext4`);
  }

  rootfsInfo(key: string): string {
    return join(this.root, 'rootfs', `${key}.json`);
  }

  /** A path in `tmp` that nobody else has. */
  temporary(kind: string): string {
    return join(this.root, 'tmp', `${kind}-${randomBytes(8).toString('hex')}`);
  }

  /** A new private folder in `tmp`. */
  async temporaryFolder(kind: string): Promise<string> {
    const folder = this.temporary(kind);
    await mkdir(folder, { mode: 0o700 });
    return folder;
  }

  /** Writes JSON so that it is there completely or not at all, also after a power cut. */
  async writeJson(path: string, value: unknown): Promise<void> {
    const temporary = this.temporary('json');
    const file = await open(temporary, 'wx', 0o644);
    try {
      await file.writeFile(`${JSON.stringify(value, null, 2)}\n`);
      await file.datasync();
    } catch (error) {
      await rm(temporary, { force: true });
      throw error;
    } finally {
      await file.close();
    }
    await this.publish(temporary, path);
  }

  /** Renames a finished file into place and makes the name itself last. */
  async publish(temporary: string, path: string): Promise<void> {
    await rename(temporary, path);
    const folder = await open(dirname(path), 'r');
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }

  /** Reads JSON; undefined if the file does not exist or is not JSON (a damaged disk: as if it were not there). */
  async readJson<T>(path: string): Promise<T | undefined> {
    try {
      return JSON.parse(await readFile(path, 'utf8')) as T;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT' || error instanceof SyntaxError)
        return undefined;
      throw error;
    }
  }

  /** All JSON files of a folder that can be read. */
  async readAllJson<T>(folder: 'images' | 'refs' | 'rootfs' | 'holds'): Promise<T[]> {
    const result: T[] = [];
    for (const name of (await readdir(join(this.root, folder))).sort()) {
      if (!name.endsWith('.json')) continue;
      const value = await this.readJson<T>(join(this.root, folder, name));
      if (value !== undefined) result.push(value);
    }
    return result;
  }
}

/** Names given by users may be of any length and hold any byte; their hash is a file name. */
function hashName(name: string): string {
  return createHash('sha256').update(name).digest('hex').slice(0, 40);
}
