// Bare rate of the HTTP/2 channel, MB/s: zeros out of the guest, and into nothing in it.
// `node transfer.mjs [--mebibytes 256] [--accelerator tcg|kvm]` prints JSON.
import { pathToFileURL } from 'node:url';
import { openExec } from './exec.mjs';
import { call, writeZeros } from './h2.mjs';
import { readArguments, withBare } from './machine.mjs';

/** Rates of one transfer each way over an open session. */
export async function measureTransfer(session, bytes) {
  const rate = (begin) => bytes / 1e6 / ((performance.now() - begin) / 1000);
  let begin = performance.now();
  const put = await call(session, 'PUT', '/null', { body: writeZeros(bytes) });
  const uploadMBps = rate(begin);
  begin = performance.now();
  const get = await call(session, 'GET', `/zero?${bytes}`, { discard: true });
  const downloadMBps = rate(begin);
  if (Number(put.text) !== bytes || get.length !== bytes) throw new Error('bare transfer lost bytes');
  return { uploadMBps, downloadMBps };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { mebibytes, accelerator } = readArguments({ mebibytes: 256, accelerator: 'tcg' });
  await withBare({ agent: 'h2', accelerator }, async (bare) => {
    const { session, close } = await openExec(bare);
    const { uploadMBps, downloadMBps } = await measureTransfer(session, mebibytes * 1024 ** 2);
    await close();
    console.log(
      JSON.stringify({
        mebibytes,
        uploadMBps: Math.round(uploadMBps),
        downloadMBps: Math.round(downloadMBps),
      }),
    );
  });
}
