/** Transfers: streamed both ways, repeated where that is safe, whole or not at all, and nothing written outside the target. */
import { createReadStream } from 'node:fs';
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import * as tar from 'tar-stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { packDirectory } from '../src/files/pack-directory.js';
import { safeName, unpackDirectory } from '../src/files/unpack-directory.js';
import {
  FileNotFoundError,
  SandboxNotRunningError,
  Sandlot,
  SandlotError,
  TooLargeError,
} from '../src/index.js';

let folder: string;
let gateway: http.Server;
let handle: (request: http.IncomingMessage, response: http.ServerResponse, count: number) => void;
let calls: http.IncomingMessage[];
let client: Sandlot;
let context = { status: 'RUNNING', errorType: null as string | null, errorMessage: null as string | null };

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'sandlot-sdk-'));
  calls = [];
  context = { status: 'RUNNING', errorType: null, errorMessage: null };
  gateway = http.createServer((request, response) => {
    const json = (body: unknown) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    if (request.url?.endsWith('/auth')) {
      json({
        token: 't',
        gateway_url: `${url()}/gw`,
        user_ns: 'u',
        job_id: 's',
        expires_at: new Date(Date.now() + 3_600_000).toISOString(),
      });
    } else if (request.url?.endsWith('/error-context')) json(context);
    else {
      calls.push(request);
      handle(request, response, calls.length);
    }
  });
  await new Promise<void>((resolve) => gateway.listen(0, '127.0.0.1', resolve));
  client = new Sandlot({ url: url(), apiKey: 'k' });
});

afterEach(async () => {
  client.close();
  gateway.closeAllConnections();
  await new Promise((resolve) => gateway.close(resolve));
  await rm(folder, { recursive: true, force: true });
});

const url = () => `http://127.0.0.1:${(gateway.address() as AddressInfo).port}`;
const files = () => client.sandboxes.handle('s').files;

function reply(response: http.ServerResponse, status: number, body: unknown) {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

describe('upload', () => {
  it('streams one part with its whole length ahead, flat in memory', async () => {
    const size = 200 * 1024 * 1024;
    async function* source() {
      const chunk = Buffer.alloc(1024 * 1024, 7);
      for (let sent = 0; sent < size; sent += chunk.length) yield chunk;
    }
    let received = 0;
    handle = (request, response) => {
      request.on('data', (chunk: Buffer) => {
        received += chunk.length;
      });
      request.on('end', () => reply(response, 200, { path: '/a/b', size }));
    };
    const before = process.memoryUsage().rss;
    let progress = 0;
    const result = await files().uploadStream(source(), '/a/b', {
      length: size,
      onProgress: (done) => {
        progress = done;
      },
    });
    expect(result).toMatchObject({ path: '/a/b', size });
    expect(progress).toBe(size);
    expect(Number(calls[0]?.headers['content-length'])).toBe(received);
    expect(received - size).toBeLessThan(1_000);
    expect(new URL(calls[0]?.url ?? '', url()).searchParams.get('path')).toBe('/a/b');
    expect(process.memoryUsage().rss - before).toBeLessThan(120 * 1024 * 1024);
  });

  it('of a file is repeated from its beginning after a passing failure', async () => {
    await writeFile(path.join(folder, 'f'), 'content');
    const bodies: string[] = [];
    handle = (request, response, count) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        bodies.push(Buffer.concat(chunks).toString());
        if (count === 1) reply(response, 503, { error: 'guest_unreachable', detail: 'x' });
        else reply(response, 200, { path: '/f', size: 7 });
      });
    };
    await files().uploadFile(path.join(folder, 'f'), '/f');
    expect(bodies).toHaveLength(2);
    expect(bodies[1]).toContain('\r\n\r\ncontent\r\n--');
    expect(bodies[1]).toContain('name="file"; filename="f"');
  });

  it('of a stream is not repeated', async () => {
    handle = (request, response) => {
      request.resume();
      request.on('end', () => reply(response, 503, { error: 'x', detail: 'x' }));
    };
    async function* source() {
      yield Buffer.from('x');
    }
    await expect(files().uploadStream(source(), '/f')).rejects.toThrow(SandlotError);
    expect(calls).toHaveLength(1);
    expect(calls[0]?.headers['transfer-encoding']).toBe('chunked');
  });

  it('of a local file that is not there is refused before anything is sent', async () => {
    await expect(files().uploadFile(path.join(folder, 'none'), '/f')).rejects.toMatchObject({
      code: 'LOCAL_FILE',
    });
    await expect(files().uploadFile(folder, '/f')).rejects.toThrow(/uploadDirectory/);
    expect(calls).toHaveLength(0);
  });

  it('into a sandbox that has ended says why', async () => {
    context = { status: 'TERMINATED', errorType: 'DELETED', errorMessage: 'it was deleted' };
    handle = (request, response) => {
      request.resume();
      request.on('end', () => reply(response, 409, { error: 'sandbox_not_running', detail: 'x' }));
    };
    const error = await files()
      .uploadStream(Buffer.from('x'), '/f')
      .catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(SandboxNotRunningError);
    expect((error as Error).message).toContain('it was deleted');
  });

  it('while the sandbox is between states is tried again', async () => {
    handle = (request, response, count) => {
      request.resume();
      request.on('end', () =>
        count === 1
          ? reply(response, 409, { error: 'busy', detail: 'x' })
          : reply(response, 200, { path: '/f', size: 1 }),
      );
    };
    await files().uploadStream(Buffer.from('x'), '/f');
    expect(calls).toHaveLength(2);
  });
});

describe('download', () => {
  it('puts the whole file in place, or leaves what was there', async () => {
    const target = path.join(folder, 'f');
    await writeFile(target, 'old');
    handle = (_request, response, count) => {
      response.writeHead(200, { 'content-length': 10 });
      response.write('12345');
      if (count === 1) setTimeout(() => response.destroy(), 20);
      else response.end('67890');
    };
    await expect(files().downloadFile('/f', target)).rejects.toThrow(SandlotError);
    expect(await readFile(target, 'utf8')).toBe('old');
    expect(await files().downloadFile('/f', target)).toBe(10);
    expect(await readFile(target, 'utf8')).toBe('1234567890');
    expect(await readdir(folder)).toEqual(['f']);
  });

  it('tells a missing file from a missing sandbox, and a file that is too large', async () => {
    handle = (request, response) => {
      if (request.url?.includes('read-file'))
        reply(response, 413, { error: 'File size …', detail: 'too large' });
      else reply(response, 404, { error: 'ENOENT', detail: 'no such file' });
    };
    await expect(files().downloadStream('/none')).rejects.toThrow(FileNotFoundError);
    await expect(files().readFile('/big')).rejects.toThrow(TooLargeError);
  });

  it('reads a window', async () => {
    handle = (_request, response) =>
      reply(response, 200, { content: 'abc', size: 3, total_size: 9, offset: 6, truncated: true });
    expect(await files().readFile('/f', { offset: -3, length: 3 })).toEqual({
      content: 'abc',
      size: 3,
      totalSize: 9,
      offset: 6,
      truncated: true,
    });
    expect(calls[0]?.url).toContain('offset=-3&length=3');
  });

  it('fails when nothing moves, however long the whole may take', async () => {
    handle = (_request, response) => {
      response.writeHead(200, { 'content-length': 4 });
      let sent = 0;
      const timer = setInterval(() => {
        response.write('x');
        if (++sent === 3) clearInterval(timer);
      }, 60);
    };
    const target = path.join(folder, 'f');
    await expect(files().downloadFile('/f', target, { timeoutMs: 150 })).rejects.toMatchObject({
      code: 'IDLE_TIMEOUT',
    });
  });
});

describe('folders', () => {
  it('come back as they went, links and modes included', async () => {
    const from = path.join(folder, 'from');
    await mkdir(path.join(from, 'sub', 'empty'), { recursive: true });
    await writeFile(path.join(from, 'a'), 'one');
    await writeFile(path.join(from, 'sub', 'b'), Buffer.alloc(300_000, 1));
    await writeFile(path.join(from, 'zero'), '');
    await chmod(path.join(from, 'a'), 0o750);
    await symlink('../a', path.join(from, 'sub', 'link'));
    const archive: Buffer[] = [];
    handle = (request, response) => {
      request.on('data', (chunk: Buffer) => archive.push(chunk));
      request.on('end', () => reply(response, 200, { path: '/x', size: 1 }));
    };
    await files().uploadDirectory(from, '/x');
    expect(calls[0]?.headers['content-type']).toBe('application/x-tar');
    handle = (_request, response) => {
      response.writeHead(200);
      for (const chunk of archive) response.write(chunk);
      response.end();
    };
    const to = path.join(folder, 'to');
    await files().downloadDirectory('/x', to);
    expect(await readFile(path.join(to, 'a'), 'utf8')).toBe('one');
    expect((await stat(path.join(to, 'a'))).mode & 0o777).toBe(0o750);
    expect((await readFile(path.join(to, 'sub', 'b'))).length).toBe(300_000);
    expect((await stat(path.join(to, 'zero'))).size).toBe(0);
    expect(await readlink(path.join(to, 'sub', 'link'))).toBe('../a');
    expect(await readdir(path.join(to, 'sub', 'empty'))).toEqual([]);
  });

  it('report a file that shrinks while it is read', async () => {
    await writeFile(path.join(folder, 'f'), Buffer.alloc(1_000_000));
    const read = async () => {
      let first = true;
      for await (const _ of packDirectory(
        folder,
        () => undefined,
        () => undefined,
      )) {
        if (first) await writeFile(path.join(folder, 'f'), 'short');
        first = false;
      }
    };
    await expect(read()).rejects.toThrow(/cannot be packed/);
  });
});

describe('a hostile archive', () => {
  type Entry = Parameters<tar.Pack['entry']>[0] & { content?: string };

  async function unpack(entries: Entry[], to = path.join(folder, 'to')) {
    const pack = tar.pack();
    for (const { content, ...header } of entries) pack.entry(header, content ?? '');
    pack.finalize();
    const skipped: string[] = [];
    await unpackDirectory(
      pack as AsyncIterable<Uint8Array>,
      to,
      (name) => skipped.push(name),
      () => undefined,
    );
    return skipped;
  }

  it('writes nothing outside the folder by its names', async () => {
    const skipped = await unpack([
      { name: '../evil', content: 'x' },
      { name: '/evil', content: 'x' },
      { name: 'a/../../evil', content: 'x' },
      { name: 'good', content: 'y' },
    ]);
    expect(skipped).toHaveLength(3);
    expect(await readdir(folder)).toEqual(['to']);
    expect(await readdir(path.join(folder, 'to'))).toEqual(['good']);
  });

  it('writes nothing through its links, in whatever order', async () => {
    const outside = path.join(folder, 'outside');
    await mkdir(outside);
    await writeFile(path.join(outside, 'target'), 'old');
    await expect(
      unpack([
        { name: 'd', type: 'symlink', linkname: outside },
        { name: 'd/evil', content: 'x' },
      ]),
    ).resolves.toEqual(['d']);
    await expect(
      unpack(
        [
          { name: 'f', type: 'symlink', linkname: path.join(outside, 'target') },
          { name: 'f', content: 'x' },
        ],
        path.join(folder, 'to2'),
      ),
    ).resolves.toEqual([]);
    expect(await readdir(outside)).toEqual(['target']);
    expect(await readFile(path.join(outside, 'target'), 'utf8')).toBe('old');
  });

  it('does not follow links that an earlier download left', async () => {
    const outside = path.join(folder, 'outside');
    await mkdir(outside);
    const to = path.join(folder, 'to');
    await mkdir(to);
    await symlink(outside, path.join(to, 'd'));
    await expect(unpack([{ name: 'd/evil', content: 'x' }], to)).rejects.toThrow(/in the way/);
    expect(await readdir(outside)).toEqual([]);
  });

  it('makes hard links only to files of its own', async () => {
    await writeFile(path.join(folder, 'secret'), 's');
    const skipped = await unpack([
      { name: 'a', content: 'x' },
      { name: 'b', type: 'link', linkname: 'a' },
      { name: 'c', type: 'link', linkname: '../secret' },
      { name: 'dev', type: 'character-device' },
      { name: 'pipe', type: 'fifo' },
      { name: 'suid', mode: 0o4755, content: 'x' },
    ]);
    expect(skipped).toEqual(['c', 'dev', 'pipe']);
    expect(await readFile(path.join(folder, 'to', 'b'), 'utf8')).toBe('x');
    expect((await stat(path.join(folder, 'to', 'suid'))).mode & 0o7777).toBe(0o755);
  });

  it('is an error when it breaks off', async () => {
    async function* broken() {
      for await (const chunk of createReadStream(import.meta.filename, { end: 700 }))
        yield chunk as Uint8Array;
      throw new SandlotError('lost', { code: 'X' });
    }
    await expect(
      unpackDirectory(
        broken(),
        path.join(folder, 'to'),
        () => undefined,
        () => undefined,
      ),
    ).rejects.toThrow();
  });

  it('has names only inside the folder', () => {
    expect(safeName('./a//b/')).toBe('a/b');
    expect(safeName('.')).toBe('');
    expect(safeName('a/..')).toBeUndefined();
    expect(safeName('/a')).toBeUndefined();
    expect(safeName('a\0b')).toBeUndefined();
  });
});
