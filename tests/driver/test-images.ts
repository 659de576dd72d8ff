/** Small images of known content for tests: built in memory, imported into a test node. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type ImageFixture,
  type LayerFixture,
  LayoutFixture,
  tarOfLayout,
} from '@sandlot/images/testing/layout-fixture';
import { buildTar, type FixtureEntry } from '@sandlot/images/testing/tar-fixture';

/** An archive (OCI layout as tar) of an image with one layer of these entries. */
export function imageArchive(
  entries: FixtureEntry[],
  image: Omit<ImageFixture, 'layers'> = {},
): Promise<Buffer> {
  return layeredArchive([{ tar: buildTar(entries) }], image);
}

/** The same of an image with these layers. */
export function layeredArchive(
  layers: LayerFixture[],
  image: Omit<ImageFixture, 'layers'> = {},
): Promise<Buffer> {
  return layoutArchive((layout) => layout.addImage({ ...image, layers }));
}

/** An OCI layout as tar, of whatever `fill` puts into it. */
export async function layoutArchive(fill: (layout: LayoutFixture) => Promise<unknown>): Promise<Buffer> {
  const folder = mkdtempSync(join(tmpdir(), 'slt-image-'));
  try {
    const layout = await LayoutFixture.create(folder);
    await fill(layout);
    return await tarOfLayout(layout);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const applets =
  'sh cat cp df du echo env false find grep head hostname id ls mkdir mount mv nc nslookup od ping ps readlink ' +
  'rm seq setsid sleep sort stat stty tail test touch tr true umount uname wc wget xargs';

/** A shell and the usual programs in `folder`: one static busybox of this host, and a link to it for each. */
export function busyboxEntries(folder = 'bin'): FixtureEntry[] {
  return [
    { name: `${folder}/busybox`, content: readFileSync('/bin/busybox'), mode: 0o755 },
    ...applets
      .split(' ')
      .map((name) => ({ name: `${folder}/${name}`, type: 'symlink' as const, linkName: 'busybox' })),
  ];
}

/** A program of this host that is linked to glibc, with its libraries and loader where it looks for them. */
export function hostProgramEntries(path: string): FixtureEntry[] {
  const libraries = [...execFileSync('ldd', [path], { encoding: 'utf8' }).matchAll(/(\/\S+) \(0x/g)];
  const files = [path, ...libraries.map((match) => match[1] as string)];
  return files.map((file) => ({ name: file.slice(1), content: readFileSync(file), mode: 0o755 }));
}

/** Account files with root, `app` (1000:1001, in group `extra` 2000 too) and `nobody`. */
export function accountEntries(): FixtureEntry[] {
  const passwd = [
    'root:x:0:0::/root:/bin/sh',
    'app:x:1000:1001::/home/app:/bin/sh',
    'nobody:x:65534:65534::/nowhere:/bin/false',
  ];
  const group = ['root:x:0:', 'app:x:1001:', 'extra:x:2000:other,app', 'nogroup:x:65534:'];
  return [
    { name: 'etc/passwd', content: `${passwd.join('\n')}\n` },
    { name: 'etc/group', content: `${group.join('\n')}\n` },
    { name: 'root', type: 'dir', mode: 0o700 },
    { name: 'tmp', type: 'dir', mode: 0o1777 },
    { name: 'home/app', type: 'dir', mode: 0o755, uid: 1000, gid: 1001 },
  ];
}

/** A static program for the guest, compiled from C; against musl with `musl-gcc`. */
export function staticProgram(source: string, compiler: 'cc' | 'musl-gcc' = 'cc'): Buffer {
  const folder = mkdtempSync(join(tmpdir(), 'slt-cc-'));
  try {
    writeFileSync(join(folder, 'main.c'), source);
    execFileSync(compiler, ['-static', '-O1', '-o', join(folder, 'main'), join(folder, 'main.c')], {
      timeout: 60_000,
    });
    return readFileSync(join(folder, 'main'));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Prints who and where it is, its arguments and environment; exits with the number after `--exit`. */
export const tellingProgram = `
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv) {
  char cwd[4096];
  gid_t groups[64];
  int count = getgroups(64, groups), code = 0;
  printf("uid=%d gid=%d groups=", (int)getuid(), (int)getgid());
  for (int i = 0; i < count; i++) printf("%s%d", i ? "," : "", (int)groups[i]);
  printf("\\ncwd=%s\\n", getcwd(cwd, sizeof cwd) ? cwd : "?");
  for (int i = 0; i < argc; i++) {
    printf("arg=%s\\n", argv[i]);
    if (i && !strcmp(argv[i - 1], "--exit")) code = atoi(argv[i]);
  }
  for (char **e = environ; *e; e++) printf("env %s\\n", *e);
  return code;
}
`;
