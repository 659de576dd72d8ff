/** Small images of known content for tests: built in memory, imported into a test node. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ImageFixture, LayoutFixture, tarOfLayout } from '@sandlot/images/testing/layout-fixture';
import { buildTar, type FixtureEntry } from '@sandlot/images/testing/tar-fixture';

/** An archive (OCI layout as tar) of an image with one layer of these entries. */
export async function imageArchive(
  entries: FixtureEntry[],
  image: Omit<ImageFixture, 'layers'> = {},
): Promise<Buffer> {
  const folder = mkdtempSync(join(tmpdir(), 'slt-image-'));
  try {
    const layout = await LayoutFixture.create(folder);
    await layout.addImage({ ...image, layers: [{ tar: buildTar(entries) }] });
    return await tarOfLayout(layout);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A static program for the guest, compiled from C. */
export function staticProgram(source: string): Buffer {
  const folder = mkdtempSync(join(tmpdir(), 'slt-cc-'));
  try {
    writeFileSync(join(folder, 'main.c'), source);
    execFileSync('cc', ['-static', '-O1', '-o', join(folder, 'main'), join(folder, 'main.c')], {
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
