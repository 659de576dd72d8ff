/**
 * Everything about every entry of a mounted tree or folder, in a form that compares: the measure of the differential
 * tests. Needs python3, because Node reads no extended attributes. For tests only.
 */
import { execFileSync } from 'node:child_process';

/** One entry. Names and values are hexadecimal, because they are bytes. */
export interface ListedEntry {
  path: string;
  mode: number;
  uid: number;
  gid: number;
  mtime: string;
  size: number;
  links: number;
  /** First path (in order) of the same inode. */
  first: string;
  device: number;
  content: string;
  target: string;
  xattrs: Record<string, string>;
}

const SCRIPT = `
import os, sys, stat, json, hashlib
root = os.fsencode(sys.argv[1]); seen = {}; out = []
def visit(path, rel):
    s = os.lstat(path); m = s.st_mode
    first = seen.setdefault(s.st_ino, rel.hex()) if not stat.S_ISDIR(m) else rel.hex()
    x = {os.fsencode(n).hex(): os.getxattr(path, n, follow_symlinks=False).hex() for n in os.listxattr(path, follow_symlinks=False)}
    out.append(dict(path=rel.hex(), mode=m, uid=s.st_uid, gid=s.st_gid, mtime=str(s.st_mtime_ns),
      size=0 if stat.S_ISDIR(m) else s.st_size, links=0 if stat.S_ISDIR(m) else s.st_nlink, first=first,
      device=s.st_rdev, content=hashlib.sha256(open(path,'rb').read()).hexdigest() if stat.S_ISREG(m) else '',
      target=os.readlink(path).hex() if stat.S_ISLNK(m) else '', xattrs=x))
    if stat.S_ISDIR(m):
        for name in sorted(os.listdir(path)):
            visit(os.path.join(path, name), rel + b'/' + name)
sys.setrecursionlimit(10000)
visit(root, b'')
json.dump(out, sys.stdout)
`;

/** Lists a folder, itself first, then depth first in byte order. */
export function listTree(folder: string): ListedEntry[] {
  const json = execFileSync('python3', ['-c', SCRIPT, folder], { maxBuffer: 2 ** 30, encoding: 'utf8' });
  return JSON.parse(json) as ListedEntry[];
}

/** A name as bytes, for messages and look-ups. */
export function nameOf(entry: ListedEntry): string {
  return Buffer.from(entry.path, 'hex').toString('latin1');
}
