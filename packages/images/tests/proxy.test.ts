/** Proxies: who is asked through one, and what the proxy sees. */
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ProxySettings } from '../src/registry/proxy.js';
import { Connections, InsecurePolicy } from '../src/registry/transport.js';

describe('the proxy of a URL', () => {
  const settings = new ProxySettings({
    HTTP_PROXY: 'http://plain:1',
    https_proxy: 'tls:2',
    HTTPS_PROXY: 'http://not-this-one:3',
    NO_PROXY: 'inside.org, .suffix.org,*.star.org only.org:5000 10.0.0.0/8,192.0.2.7,fd00::/8',
  });

  it.each([
    ['http://registry.org/v2/', 'plain:1'],
    ['https://registry.org/v2/', 'tls:2'],
    ['https://notinside.org/', 'tls:2'],
    ['https://only.org/', 'tls:2'],
    ['https://11.0.0.1/', 'tls:2'],
    ['https://inside.org/', undefined],
    ['https://a.inside.org/', undefined],
    ['https://a.suffix.org/', undefined],
    ['https://a.b.star.org/', undefined],
    ['https://only.org:5000/', undefined],
    ['https://10.1.2.3/', undefined],
    ['https://192.0.2.7:5000/', undefined],
    ['https://[fd00::1]/', undefined],
    ['http://localhost:5000/', undefined],
    ['https://127.0.0.1:5000/', undefined],
    ['http://[::1]:5000/', undefined],
  ])('%s: %s', (url, proxy) => {
    expect(settings.proxyFor(new URL(url))?.host).toBe(proxy);
  });

  it('is none without variables, and none with NO_PROXY=*', () => {
    const url = new URL('https://registry.org/');
    expect(new ProxySettings({}).proxyFor(url)).toBeUndefined();
    expect(new ProxySettings({ https_proxy: 'http://p:1', no_proxy: '*' }).proxyFor(url)).toBeUndefined();
  });

  it('must be one that we can use', () => {
    expect(() => new ProxySettings({ HTTPS_PROXY: 'socks5://p:1' })).toThrow(/HTTPS_PROXY/);
    const stray = () => new ProxySettings({ HTTP_PROXY: 'http://me:50%off@p:1' });
    expect(stray).toThrow(/password in HTTP_PROXY .* %25/);
    expect(stray).not.toThrow(/off/);
  });
});

describe('a request', () => {
  let proxy: Server;
  let address = '';
  let connections: Connections;
  beforeEach(async () => {
    proxy = createServer();
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    address = `127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    connections = new Connections({
      HTTP_PROXY: `http://me:p%40ss@${address}`,
      HTTPS_PROXY: `http://me:x@${address}`,
    });
  });
  afterEach(async () => {
    connections.close();
    proxy.closeAllConnections();
    await new Promise((resolve) => proxy.close(resolve));
  });

  const send = (url: string) =>
    connections.send({
      url,
      headers: {},
      silenceMs: 5_000,
      signal: new AbortController().signal,
      policy: new InsecurePolicy(['registry.test']),
    });

  it('in plain HTTP gives the proxy the whole URL and its password', async () => {
    let seen: IncomingMessage | undefined;
    proxy.on('request', (request, response) => {
      seen = request;
      response.end('from afar');
    });
    const answer = await send('http://registry.test:5000/v2/');
    answer.body.resume();
    answer.cancel();
    expect(answer.status).toBe(200);
    expect(seen?.url).toBe('http://registry.test:5000/v2/');
    expect(seen?.headers).not.toHaveProperty('authorization');
    expect(seen?.headers).toMatchObject({
      host: 'registry.test:5000',
      'proxy-authorization': `Basic ${Buffer.from('me:p@ss').toString('base64')}`,
    });
  });

  it('in TLS asks for a tunnel, and speaks TLS to the registry in it', async () => {
    let asked: IncomingMessage | undefined;
    const hello = new Promise<Buffer>((resolve) => {
      proxy.on('connect', (request: IncomingMessage, socket: Duplex) => {
        asked = request;
        socket.on('error', () => undefined);
        socket.write('HTTP/1.1 200 OK\r\n\r\n');
        socket.once('data', (bytes: Buffer) => {
          resolve(bytes);
          socket.destroy();
        });
      });
    });
    await expect(send('https://registry.test/v2/')).rejects.toThrow();
    expect(asked?.url).toBe('registry.test:443');
    expect(asked?.headers).not.toHaveProperty('authorization');
    const bytes = await hello;
    // A handshake record (RFC 8446, 5.1) with the registry's name in clear.
    expect(bytes[0]).toBe(22);
    expect(bytes.includes('registry.test')).toBe(true);
  });

  it('that the proxy refuses says so', async () => {
    proxy.on('connect', (_request: IncomingMessage, socket: Duplex) => {
      socket.on('error', () => undefined);
      socket.end('HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n');
    });
    await expect(send('https://registry.test/v2/')).rejects.toThrow(`the proxy ${address} refuses`);
    proxy.on('request', (_request, response) => response.writeHead(407).end());
    await expect(send('http://registry.test/v2/')).rejects.toThrow(`the proxy ${address} wants a login`);
  });

  it('to an IPv6 address names it as a URL does, and ends with the connections', async () => {
    let ended: Promise<unknown> = Promise.resolve();
    const asked = new Promise<string | undefined>((resolve) => {
      proxy.on('connect', (request: IncomingMessage, socket: Duplex) => {
        socket.on('error', () => undefined);
        ended = new Promise((close) => socket.once('close', close));
        socket.resume().once('end', () => socket.end());
        resolve(request.url);
      });
    });
    const failed = expect(send('https://[fd00::1]/v2/')).rejects.toThrow('the connections were closed');
    expect(await asked).toBe('[fd00::1]:443');
    connections.close();
    await failed;
    await ended;
  });
});
