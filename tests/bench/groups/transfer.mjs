// Group `transfer`: upload and download of 256 MiB through the gateway, beside the bare HTTP/2 channel.
import { openExec } from '../bare/exec.mjs';
import { writeZeros } from '../bare/h2.mjs';
import { quantile, withBare } from '../bare/machine.mjs';
import { measureTransfer } from '../bare/transfer.mjs';

const bytes = 256 * 1024 ** 2;
const rounds = 3;
const boundary = 'sandlot-bench-boundary';

export function measure({ server, image, accelerator, onFigure }) {
  return withBare({ agent: 'h2', accelerator }, async (bare) => {
    const { session, close } = await openExec(bare);
    const id = await server.create(image);
    const gateway = await server.authorize(id);
    const seen = { upload: [], download: [], bareUpload: [], bareDownload: [] };
    const rate = (begin) => bytes / 1e6 / ((performance.now() - begin) / 1000);
    for (let round = 0; round < rounds; round++) {
      const { uploadMBps, downloadMBps } = await measureTransfer(session, bytes);
      seen.bareUpload.push(uploadMBps);
      seen.bareDownload.push(downloadMBps);
      let begin = performance.now();
      await upload(server, gateway, '/root/bench');
      seen.upload.push(rate(begin));
      begin = performance.now();
      const target = `${gateway.base}/download?path=/root/bench`;
      const { length } = await server.send('GET', target, { token: gateway.token, discard: true });
      seen.download.push(rate(begin));
      if (length !== bytes) throw new Error(`downloaded ${length} of ${bytes} bytes`);
    }
    await server.remove(id);
    await close();
    const p50 = (name) => quantile(seen[name], 0.5);
    onFigure('upload-256mib', { product: p50('upload'), bare: p50('bareUpload') });
    onFigure('download-256mib', { product: p50('download'), bare: p50('bareDownload') });
  });
}

/** A multipart upload as Prime's clients send it, streamed. */
function upload(server, gateway, path) {
  const head = `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="bench"\r\nContent-Type: application/octet-stream\r\n\r\n`;
  const tail = `\r\n--${boundary}--\r\n`;
  return server.send('POST', `${gateway.base}/upload?path=${path}`, {
    token: gateway.token,
    headers: {
      'content-type': `multipart/form-data; boundary=${boundary}`,
      'content-length': head.length + bytes + tail.length,
    },
    body: (request) => {
      request.write(head);
      // `writeZeros` ends what it writes to; the tail comes before that.
      writeZeros(bytes)({
        write: (chunk) => request.write(chunk),
        once: (event, go) => request.once(event, go),
        end: () => request.end(tail),
      });
    },
  });
}
