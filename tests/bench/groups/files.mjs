// Group `files`: images of many small files. 200,000 in 2,000 folders beside `umoci unpack`; 20,000 in one.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { writeLayout } from '../inputs/layout.mjs';
import { tarEnd, tarEntry } from '../inputs/tar.mjs';
import { sandlot } from '../product/server.mjs';

export async function measure({ onFigure }) {
  const folder = mkdtempSync(path.join(tmpdir(), 'sandlot-bench-files-'));
  try {
    const many = await writeLayout(path.join(folder, 'many'), spread(2_000, 100));
    const bare = timeUmoci(many.folder, path.join(folder, 'unpacked'));
    onFigure('build-200k-files', { product: await timeImport(many.folder), bare });

    const one = await writeLayout(path.join(folder, 'one'), spread(1, 20_000));
    onFigure('build-20k-files-one-folder', { product: await timeImport(one.folder) });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function* spread(folders, filesEach) {
  for (let f = 0; f < folders; f++) {
    yield tarEntry(`folder-${f}/`, undefined, { folder: true });
    for (let i = 0; i < filesEach; i++) yield tarEntry(`folder-${f}/file-${i}`, Buffer.from(`${f} ${i}\n`));
  }
  yield tarEnd;
}

/** `umoci unpack`, ms; removes what it unpacked. */
function timeUmoci(layout, out) {
  const begin = performance.now();
  execFileSync('umoci', ['unpack', '--image', `${layout}:latest`, out], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const ms = performance.now() - begin;
  rmSync(out, { recursive: true, force: true });
  return ms;
}

async function timeImport(layout) {
  const name = 'bench-files:latest';
  const begin = performance.now();
  await sandlot('image', 'import', layout, name);
  const ms = performance.now() - begin;
  await sandlot('image', 'rm', name);
  return ms;
}
