import { expect, it } from 'vitest';
import { OptionError, parseOptions } from './options.js';

it('reads what `up` gives', () => {
  const args =
    '--data /d/control-plane --keys /d/keys --listen 127.0.0.1:7070 --node-socket /d/n --admin-socket /d/a --ready-file /d/r'.split(
      ' ',
    );
  expect(parseOptions(args)).toMatchObject({
    readyFile: '/d/r',
    server: {
      dataFolder: '/d/control-plane',
      keysFolder: '/d/keys',
      host: '127.0.0.1',
      port: 7070,
      nodeSocket: '/d/n',
      adminSocket: '/d/a',
      shownDataFolder: '/d',
      trustedProxies: [],
    },
  });
});

it('takes a certificate and its key, by absolute paths', () => {
  const args = ['--data', '/d', '--tls-cert', '/c.pem', '--tls-key', '/k.pem'];
  expect(parseOptions(args).server.tls).toEqual({ certPath: '/c.pem', keyPath: '/k.pem' });
});

it('takes addresses and ranges of trusted proxies', () => {
  const proxies = ['10.0.0.1', '192.168.0.0/16', '::1', 'fd00::/8'];
  const args = ['--data', '/d', ...proxies.flatMap((proxy) => ['--trusted-proxy', proxy])];
  expect(parseOptions(args).server.trustedProxies).toEqual(proxies);
});

it.each([
  ['8080', '127.0.0.1', 8080],
  [':8080', '127.0.0.1', 8080],
  ['*:1', '0.0.0.0', 1],
  ['[::1]:80', '::1', 80],
  ['host.example:0', 'host.example', 0],
])('--listen %s', (listen, host, port) => {
  expect(parseOptions(['--data', '/d', '--listen', listen]).server).toMatchObject({ host, port });
});

it.each([
  [[]],
  [['--data', '/d', '--listen', 'x']],
  [['--data', '/d', '--listen', '1:99999']],
  [['--data', '/d', '--public-url', 'ftp://x']],
  [['--data', '/d', '--public-url', 'nonsense']],
  [['--data', '/d', '--trusted-proxy', 'proxy.example']],
  [['--data', '/d', '--trusted-proxy', '10.0.0.0/33']],
  [['--data', '/d', '--trusted-proxy', '10.0.0.0/8/8']],
  [['--data', '/d', '--trusted-proxy', '::1/']],
  [['--data', '/d', '--log-level', 'loud']],
  [['--data', '/d', '--tls-cert', '/c']],
  [['--data', '/d', '--tls-key', '/k']],
  [['--data', '/d', '--no-such']],
])('refuses %j', (args) => {
  expect(() => parseOptions(args)).toThrow(OptionError);
});
