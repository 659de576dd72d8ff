/** Checks of the programs that the node agent calls, and of the guest's files. */
import path from 'node:path';
import { type Check, type Finding, fail, ok, warn } from './check.js';

const installHint = (packages: string) => `Install it (Debian: apt-get install ${packages}).`;

/** QEMU 8.2 or newer: what restores were measured with is 10.0. */
export const qemu: Check = ({ runProgram }) => {
  const text = runProgram('qemu-system-x86_64', ['--version']);
  const found = /version (\d+)\.(\d+)(\.\d+)?/.exec(text ?? '');
  if (!found)
    return fail('qemu', 'qemu-system-x86_64 was not found', installHint('qemu-system-x86 qemu-utils'));
  const seen = found[0].replace('version ', '');
  const [, major, minor] = found.map(Number);
  return isAtLeast([major ?? 0, minor ?? 0, 0], [8, 2, 0])
    ? ok('qemu', seen)
    : fail('qemu', `${seen} is too old`, 'Version 8.2 or newer is needed (Debian 12: from backports).');
};

/** mke2fs reads a tar from 1.47.1 on. */
export const e2fsprogs: Check = ({ runProgram }) => {
  const found = /mke2fs (\d+)\.(\d+)(?:\.(\d+))?/.exec(runProgram('mke2fs', ['-V']) ?? '');
  if (!found) return fail('e2fsprogs', 'mke2fs was not found', installHint('e2fsprogs'));
  const seen = found[0].replace('mke2fs ', '');
  const version = [Number(found[1]), Number(found[2]), Number(found[3] ?? 0)] as const;
  return isAtLeast(version, [1, 47, 1])
    ? ok('e2fsprogs', seen)
    : fail(
        'e2fsprogs',
        `${seen} cannot read a tar`,
        '1.47.1 or newer is needed (Debian 12: from backports).',
      );
};

/** Programs of the network and of privileges; only root uses them. */
export const networkPrograms: Check = ({ runProgram, isRoot }) => {
  const wanted: [string, string[], string][] = [
    ['nft', ['--version'], 'nftables'],
    ['ip', ['-V'], 'iproute2'],
    ['setpriv', ['--version'], 'util-linux'],
    ['nsenter', ['--version'], 'util-linux'],
  ];
  const missing = wanted.filter(([file, args]) => runProgram(file, args) === undefined);
  if (missing.length === 0) return ok('programs', wanted.map(([file]) => file).join(', '));
  const seen = `not found: ${missing.map(([file]) => file).join(', ')}`;
  const advice = installHint([...new Set(missing.map(([, , name]) => name))].join(' '));
  return isRoot
    ? fail('programs', seen, advice)
    : warn('programs', seen, `${advice} Only a server of root needs them.`);
};

/** Kernel, initramfs and modules disk. */
export const guestAssets: Check = ({ exists, guestAssets: folder, readText }) => {
  if (!exists(folder)) {
    return fail(
      'guest files',
      `there is no ${folder}`,
      'Run `make build`, or name the folder with --guest-assets.',
    );
  }
  const manifest = readText(path.join(folder, 'manifest.json'));
  const names = manifestFiles(manifest);
  if (!names) return fail('guest files', `${folder} is not complete`, 'Run `make build` to make it again.');
  const missing = names.filter((name) => !exists(path.join(folder, name)));
  return missing.length === 0
    ? ok('guest files', folder)
    : fail('guest files', `${folder} lacks ${missing.join(', ')}`, 'Run `make build` to make them.');
};

/** Names of the files, as tools/guest-assets/build.sh lists them; its list is written last. */
function manifestFiles(manifest: string | undefined): string[] | undefined {
  try {
    const { files } = JSON.parse(manifest ?? '') as { files?: Record<string, string> };
    return files && Object.keys(files);
  } catch {
    return undefined;
  }
}

/** A way out for sandboxes. */
export const route: Check = ({ readText, isRoot }) => {
  const lines = (readText('/proc/net/route') ?? '').split('\n').slice(1);
  const line = lines
    .map((one) => one.split('\t'))
    .find((fields) => fields[1] === '00000000' && fields[7] === '00000000');
  if (!line)
    return warn('route', 'no default route for IPv4', 'Sandboxes and pulls reach nothing outside this host.');
  return ok('route', `default by ${line[0]}${isRoot ? '' : ' (used only with --rootless-network)'}`);
};

/** Forwarding is switched on by `up` and put back by `down`. */
export const forwarding: Check = ({ readText, isRoot }): Finding => {
  const value = readText('/proc/sys/net/ipv4/ip_forward')?.trim();
  if (value === '1') return ok('ip_forward', 'on');
  if (isRoot) return ok('ip_forward', 'off; `up` turns it on and `down` puts it back');
  return ok('ip_forward', 'off; not needed without root');
};

/** /dev/net/tun for the taps. */
export const tun: Check = ({ canOpen, isRoot }) => {
  if (canOpen('/dev/net/tun')) return ok('tun', '/dev/net/tun opens');
  return isRoot
    ? warn(
        'tun',
        '/dev/net/tun cannot be opened',
        "Machines fall back to QEMU's user network. Load it: modprobe tun",
      )
    : ok('tun', 'not needed without root');
};

function isAtLeast(version: readonly number[], wanted: readonly number[]): boolean {
  for (const [index, part] of wanted.entries()) {
    const have = version[index] ?? 0;
    if (have !== part) return have > part;
  }
  return true;
}
