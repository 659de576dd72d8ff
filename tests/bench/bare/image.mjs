// Bare image, ms: the layer comes over loopback HTTP, is unpacked and piped into `mke2fs -d -`.
// `node image.mjs --layer FILE.tar.gz [--mebibytes 1024]` prints JSON; run.mjs calls `measureImage`.
import { spawn } from 'node:child_process';
import { createReadStream, rmSync, statSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { pathToFileURL } from 'node:url';
import { createGunzip } from 'node:zlib';
import { readArguments } from './machine.mjs';

/** Transfer and file system of one gzip layer; removes what it made. */
export async function measureImage(layer, mebibytes) {
  const server = http.createServer((_request, answer) => {
    answer.setHeader('content-length', statSync(layer).size);
    createReadStream(layer).pipe(answer);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const out = path.join(tmpdir(), `sandlot-bare-image-${process.pid}.ext4`);
  try {
    const begin = performance.now();
    const answer = await new Promise((resolve, reject) => {
      http.get({ port: server.address().port }, resolve).once('error', reject);
    });
    const mke2fs = spawn(
      'mke2fs',
      ['-q', '-F', '-t', 'ext4', '-b', '4096', '-E', 'lazy_itable_init=0', '-d', '-', out, `${mebibytes}M`],
      {
        stdio: ['pipe', 'ignore', 'inherit'],
        env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` },
      },
    );
    const ended = new Promise((resolve) => mke2fs.once('exit', resolve));
    await pipeline(answer, createGunzip(), mke2fs.stdin);
    const code = await ended;
    if (code !== 0) throw new Error(`mke2fs ended with ${code}`);
    return { imageMs: performance.now() - begin };
  } finally {
    server.close();
    rmSync(out, { force: true });
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { layer, mebibytes } = readArguments({ layer: '', mebibytes: 1024 });
  const { imageMs } = await measureImage(layer, mebibytes);
  console.log(JSON.stringify({ layer, imageMs: Math.round(imageMs) }));
}
