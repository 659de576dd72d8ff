/** What `up` keeps of an instance, with which words it starts the daemons, and as whom. */
import { createPrivateKey, createPublicKey } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseOptions as readControlPlaneOptions } from '../../control-plane/src/options.js';
import { parseOptions as readNodeAgentOptions } from '../../node-agent/src/options.js';
import type { CliContext } from '../src/context.js';
import { buildProgram } from '../src/program.js';
import { checkOptions } from '../src/up/check-options.js';
import { readInstance } from '../src/up/instance.js';
import { ensureGatewayKeys } from '../src/up/keys.js';
import { instanceIdOf, layoutOf, makeDataFolder } from '../src/up/layout.js';
import { keepOptions, prepareServer, withOptions } from '../src/up/local-server.js';
import {
  controlPlaneArguments,
  type DaemonOptions,
  daemonOptionNames,
  endpointOf,
  localUrlOf,
  mergeOptions,
  nodeAgentArguments,
} from '../src/up/options.js';
import { canTraverse } from '../src/up/reachable-build.js';
import { findUser } from '../src/up/service-user.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'sandlot-up-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe('an instance', () => {
  it('has an id made from the real path of its data', () => {
    const real = path.join(folder, 'data');
    mkdirSync(real);
    symlinkSync(real, path.join(folder, 'link'));
    const id = instanceIdOf(makeDataFolder(path.join(folder, 'link')));
    expect(id).toMatch(/^[0-9a-f]{4}$/);
    expect(id).toBe(instanceIdOf(makeDataFolder(real)));
    expect(id).not.toBe(instanceIdOf(`${real}2`));
  });

  it('makes its folder with what is above it, and says where it cannot', () => {
    expect(makeDataFolder(path.join(folder, 'a/b/c'))).toContain('/a/b/c');
    expect(() => makeDataFolder('/proc/sandlot')).toThrow('cannot make the data folder /proc/sandlot');
    expect(() => makeDataFolder('/etc/passwd/x')).toThrow('cannot make the data folder /etc/passwd/x');
  });

  it('has a pair of keys that fit, kept from then on, readable by their owner', () => {
    const layout = layoutOf(folder);
    ensureGatewayKeys(layout, undefined);
    const file = path.join(layout.keys, 'gateway.key');
    const text = readFileSync(file, 'utf8');
    const derived = createPublicKey(createPrivateKey(text)).export({ type: 'spki', format: 'pem' });
    expect(derived).toBe(readFileSync(layout.gatewayPublicKey, 'utf8'));
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(statSync(layout.keys).mode & 0o777).toBe(0o700);
    ensureGatewayKeys(layout, undefined);
    expect(readFileSync(file, 'utf8')).toBe(text);
  });

  it('keeps its flags until they are given anew', () => {
    const kept = mergeOptions(
      { listen: '0.0.0.0:1', kvm: 'never' },
      { kvm: 'auto', output: 'json', detach: true },
    );
    expect(kept).toEqual({ listen: '0.0.0.0:1', kvm: 'auto' });
  });

  it('checks new flags before anything is stopped, and keeps them only with `keepOptions`', async () => {
    const kept = prepareServer(path.join(folder, 'data'), false);
    expect(withOptions(kept, { output: 'json', detach: true })).toBe(kept);
    const wanted = withOptions(kept, { listen: 'nonsense', kvm: 'never' });
    expect(kept.url).toBe('http://127.0.0.1:7070');
    await expect(checkOptions([wanted.nodeAgent, wanted.controlPlane])).rejects.toMatchObject({
      message: '--listen must be HOST:PORT, got nonsense',
      exitCode: 2,
    });
    await checkOptions([kept.nodeAgent, kept.controlPlane]);
    const { layout } = kept;
    expect(readInstance(layout.instanceFile)).toEqual(kept.instance);
    keepOptions(withOptions(kept, { listen: '127.0.0.1:1' }));
    expect(prepareServer(path.join(folder, 'data'), false).url).toBe('http://127.0.0.1:1');
  });

  it('starts its daemons with these words', () => {
    const layout = layoutOf('/d');
    expect(
      nodeAgentArguments(
        layout,
        'beef',
        {
          guestAssets: '/g',
          kvm: 'never',
          allowPrivate: ['10.0.0.0/8', '172.16.0.0/12'],
          allowHostPort: ['80'],
          poolSize: 2,
        },
        { uid: 9, gid: 8 },
      ).join(' '),
    ).toBe(
      '--data /d/node --socket /d/run/node.sock --public-key /d/keys/gateway.pub --instance beef --ready-file /d/run/node.json --log-folder /d/logs --guest-assets /g --kvm never --allow-private 10.0.0.0/8 --allow-private 172.16.0.0/12 --allow-host-port 80 --run-children-as 9:8 --pool-size 2',
    );
    expect(controlPlaneArguments(layout, { publicUrl: 'https://x' }).join(' ')).toContain(
      '--data /d/control-plane --keys /d/keys --listen 127.0.0.1:7070 --node-socket /d/run/node.sock --admin-socket /d/run/admin.sock',
    );
  });

  it('has a flag of `up` for everything that its daemons can be told', () => {
    const program = buildProgram({} as CliContext, () => undefined);
    const up = program.commands.find((command) => command.name() === 'up');
    const own = ['detach', 'restart', 'ifStale', 'data', 'output'];
    const flags = (up?.options ?? []).map((option) => option.attributeName());
    expect(flags.filter((name) => !own.includes(name)).sort()).toEqual([...daemonOptionNames].sort());

    const options = {
      ...{ listen: '0.0.0.0:1', publicUrl: 'https://x', trustedProxy: ['10.0.0.0/8', '::1'] },
      ...{ cpuOvercommit: 3, memoryOvercommit: 4, diskOvercommit: 5, allowPrivate: ['10.1.0.0/16'] },
      ...{ allowHostPort: ['80', '443'], subnet: '10.77.0.0/20', rootlessNetwork: true },
      ...{ kvm: 'never', driver: 'fake', agentBinary: '/a', prebuild: ['1x256'], guestAssets: '/g' },
      ...{ insecureRegistry: ['r:5000'], poolSize: 2, tlsCert: '/c', tlsKey: '/k', cpuModel: 'EPYC-v4' },
    } satisfies Required<DaemonOptions>;
    expect(
      readNodeAgentOptions(nodeAgentArguments(layoutOf('/d'), 'beef', options, undefined)),
    ).toMatchObject({
      ...{ cpuOvercommit: 3, memoryOvercommit: 4, diskOvercommit: 5, allowPrivate: ['10.1.0.0/16'] },
      ...{ allowHostPorts: [80, 443], subnet: '10.77.0.0/20', rootlessNetwork: true, kvm: 'never' },
      ...{ driver: 'fake', agentBinary: '/a', prebuild: [{ vcpus: 1, memoryMiB: 256 }], guestAssets: '/g' },
      ...{ insecureRegistries: ['r:5000'], poolSize: 2, cpuModel: 'EPYC-v4' },
    });
    expect(readControlPlaneOptions(controlPlaneArguments(layoutOf('/d'), options)).server).toMatchObject({
      ...{ host: '0.0.0.0', port: 1, publicUrl: 'https://x', trustedProxies: ['10.0.0.0/8', '::1'] },
      tls: { certPath: '/c', keyPath: '/k' },
    });
  });

  it('is reached through loopback wherever it listens', () => {
    expect(localUrlOf('0.0.0.0:80')).toBe('http://127.0.0.1:80');
    expect(localUrlOf('[::]:80')).toBe('http://127.0.0.1:80');
    expect(localUrlOf('10.0.0.1:80')).toBe('http://10.0.0.1:80');
    expect(localUrlOf('8080')).toBe('http://127.0.0.1:8080');
    expect(localUrlOf('8080', 'https')).toBe('https://127.0.0.1:8080');
  });

  it('listens at the port of the scheme where the URL names none', () => {
    expect(endpointOf(new URL('https://10.0.0.1:443'))).toEqual({ host: '10.0.0.1', port: 443 });
    expect(endpointOf(new URL('http://[::1]:80'))).toEqual({ host: '::1', port: 80 });
    expect(endpointOf(new URL('https://127.0.0.1:7070'))).toEqual({ host: '127.0.0.1', port: 7070 });
  });

  it('with TLS has an https URL: that of --public-url where there is one', async () => {
    const kept = prepareServer(path.join(folder, 'data'), false);
    const secure = withOptions(kept, { tlsCert: 'cert.pem', tlsKey: '/key.pem' });
    expect(secure.url).toBe('https://127.0.0.1:7070');
    expect(secure.controlPlane.args).toEqual(
      expect.arrayContaining(['--tls-cert', path.resolve('cert.pem'), '--tls-key', '/key.pem']),
    );
    const named = withOptions(secure, { publicUrl: 'https://sandlot.example.org/' });
    expect([named.url, named.controlPlane.health]).toEqual([
      'https://sandlot.example.org',
      { url: 'https://127.0.0.1:7070' },
    ]);
    await expect(checkOptions([withOptions(kept, { tlsCert: '/c' }).controlPlane])).rejects.toMatchObject({
      message: '--tls-cert needs --tls-key: TLS takes a certificate and its key',
      exitCode: 2,
    });
    await expect(checkOptions([secure.controlPlane])).rejects.toMatchObject({
      message: `--tls-cert: there is no file ${path.resolve('cert.pem')}`,
    });
  });
});

describe('the service user', () => {
  it('is looked up in passwd', () => {
    const passwd = 'root:x:0:0:root:/root:/bin/bash\nsandlot:x:998:997::/nonexistent:/usr/sbin/nologin\n';
    expect(findUser('sandlot', passwd)).toEqual({
      name: 'sandlot',
      uid: 998,
      gid: 997,
      home: '/nonexistent',
    });
    expect(findUser('nobody', passwd)).toBeUndefined();
  });

  it('cannot walk through a closed folder', () => {
    const closed = path.join(folder, 'closed', 'in');
    mkdirSync(closed, { recursive: true });
    const stranger = { uid: 64_000, gid: 64_000 };
    statSync(folder);
    expect(canTraverse('/usr/bin', stranger)).toBe(true);
    expect(canTraverse(closed, stranger)).toBe(false);
  });
});
