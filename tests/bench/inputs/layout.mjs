// Makes OCI images for the benchmarks: a gzip layer from tar chunks, its config and manifest, in an OCI
// layout folder that skopeo, umoci and `sandlot image import` read, and a small registry that serves it.
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream, mkdirSync, renameSync, statSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';

/** Writes a layout with one image named `latest`. `chunks`: iterable of Buffers of one tar. Answers paths and digests. */
export async function writeLayout(folder, chunks) {
  const blobs = path.join(folder, 'blobs/sha256');
  mkdirSync(blobs, { recursive: true });
  const [diffId, compressed] = [createHash('sha256'), createHash('sha256')];
  const unnamed = path.join(blobs, 'layer.new');
  await pipeline(
    Readable.from(chunks),
    async function* hashPlain(source) {
      for await (const chunk of source) {
        diffId.update(chunk);
        yield chunk;
      }
    },
    createGzip({ level: 1 }),
    async function* hashCompressed(source) {
      for await (const chunk of source) {
        compressed.update(chunk);
        yield chunk;
      }
    },
    createWriteStream(unnamed),
  );
  const layerDigest = compressed.digest('hex');
  const layer = path.join(blobs, layerDigest);
  renameSync(unnamed, layer);
  const put = (value) => {
    const bytes = Buffer.from(JSON.stringify(value));
    const digest = createHash('sha256').update(bytes).digest('hex');
    writeFileSync(path.join(blobs, digest), bytes);
    return { digest: `sha256:${digest}`, size: bytes.length };
  };
  const config = put({
    architecture: 'amd64',
    os: 'linux',
    config: { Env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'], Cmd: ['sh'] },
    rootfs: { type: 'layers', diff_ids: [`sha256:${diffId.digest('hex')}`] },
  });
  const media = 'application/vnd.oci.image';
  const manifest = put({
    schemaVersion: 2,
    mediaType: `${media}.manifest.v1+json`,
    config: { mediaType: `${media}.config.v1+json`, ...config },
    layers: [
      {
        mediaType: `${media}.layer.v1.tar+gzip`,
        digest: `sha256:${layerDigest}`,
        size: statSync(layer).size,
      },
    ],
  });
  const named = { mediaType: `${media}.manifest.v1+json`, ...manifest };
  writeFileSync(path.join(folder, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }));
  writeFileSync(
    path.join(folder, 'index.json'),
    JSON.stringify({
      schemaVersion: 2,
      manifests: [{ ...named, annotations: { 'org.opencontainers.image.ref.name': 'latest' } }],
    }),
  );
  return { folder, layer, manifest: named };
}

/** Serves a layout as a registry on loopback: `127.0.0.1:PORT/bench:latest`. Blobs whole, no upload. */
export async function serveLayout({ folder, manifest }) {
  const server = http.createServer((request, answer) => {
    const [, kind, name] = /^\/v2\/[^/]+\/(manifests|blobs)\/(?:sha256:)?(.+)$/.exec(request.url) ?? [];
    if (request.url === '/v2/') return answer.end('{}');
    if (!kind) return answer.writeHead(404).end();
    const digest = kind === 'manifests' && name === 'latest' ? manifest.digest.slice(7) : name;
    const file = path.join(folder, 'blobs/sha256', path.basename(digest));
    answer.setHeader('content-type', kind === 'manifests' ? manifest.mediaType : 'application/octet-stream');
    answer.setHeader('docker-content-digest', `sha256:${digest}`);
    answer.setHeader('content-length', statSync(file).size);
    if (request.method === 'HEAD') return answer.end();
    createReadStream(file).pipe(answer);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { reference: `127.0.0.1:${server.address().port}/bench:latest`, close: () => server.close() };
}
