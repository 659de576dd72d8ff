// Group `image`: an unseen image of about 200 MB from a local registry to its first exec, beside transfer
// and `mke2fs -d -` of the same layer plus a bare start; and the peak memory of building 1 GB.
import { randomBytes } from 'node:crypto';
import { createReadStream, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { measureImage } from '../bare/image.mjs';
import { extractLayer, quantile, withBare } from '../bare/machine.mjs';
import { measureStart } from '../bare/start.mjs';
import { serveLayout, writeLayout } from '../inputs/layout.mjs';
import { tarEnd, tarEntry } from '../inputs/tar.mjs';
import { collectGarbage } from '../product/collect.mjs';
import { watchPeak } from '../product/processes.mjs';
import { sandlot, timeFirstExec } from '../product/server.mjs';

const rounds = 3;

export async function measure({ server, accelerator, onFigure }) {
  const folder = mkdtempSync(path.join(tmpdir(), 'sandlot-bench-image-'));
  try {
    const seen = await withBare({ accelerator }, (bare) => measureUnseen(bare, server, folder));
    onFigure('unseen-image-first-exec', {
      product: quantile(seen.product, 0.5),
      bare: quantile(seen.bare, 0.5),
    });
    onFigure('build-1gb-peak-memory', { product: await measurePeak(server, folder) });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function measureUnseen(bare, server, folder) {
  const seen = { product: [], bare: [] };
  for (let round = 0; round < rounds; round++) {
    const layout = await writeLayout(path.join(folder, String(round)), unseenPython());
    seen.bare.push((await measureImage(layout.layer, 1024)).imageMs + (await measureStart(bare)).firstExecMs);
    const registry = await serveLayout(layout);
    try {
      const { id, ms } = await timeFirstExec(server, registry.reference);
      seen.product.push(ms);
      await server.remove(id);
      await sandlot('image', 'rm', registry.reference);
    } finally {
      registry.close();
    }
  }
  return seen;
}

/** Highest memory of the node agent and its children while it pulls and builds 1 GB, MiB. */
async function measurePeak(server, folder) {
  const layout = await writeLayout(path.join(folder, 'large'), oneGigabyte());
  const registry = await serveLayout(layout);
  const { pid } = server.status.processes.find((process) => process.role === 'node agent');
  // What earlier groups have left on its heap is none of the build's.
  await collectGarbage(pid);
  const stop = watchPeak(pid);
  try {
    await sandlot('image', 'pull', registry.reference);
    return stop();
  } finally {
    stop();
    registry.close();
    await sandlot('image', 'rm', registry.reference).catch(() => {});
  }
}

/** The Python stand-in's layer with a first file that nobody has seen. */
async function* unseenPython() {
  yield tarEntry('unseen', randomBytes(1024 * 1024));
  yield* createReadStream(extractLayer(), { highWaterMark: 256 * 1024 });
}

/** 1 GB in files of 4 MB, half of each compressible. */
function* oneGigabyte() {
  for (let i = 0; i < 250; i++) {
    yield tarEntry(`file-${i}`, Buffer.concat([randomBytes(2_000_000), Buffer.alloc(2_000_000, `${i} `)]));
  }
  yield tarEnd;
}
