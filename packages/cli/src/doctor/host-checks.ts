/** Checks of the host itself: rights, KVM, memory, disk, clock, port. */
import { bytes } from '../output/units.js';
import { type Check, fail, ok, warn } from './check.js';

/** Root or not. */
export const rights: Check = ({ isRoot }) =>
  isRoot
    ? ok('rights', 'root')
    : warn(
        'rights',
        'not root',
        "works with QEMU's user network: no network in sandboxes unless `up --rootless-network`, no uid of its own for each machine. Run `sandlot up` as root for all of it.",
      );

/** /dev/kvm, and what the last probe with a real guest said. */
export const kvm: Check = ({ exists, canOpen, serverStatus }) => {
  const slow = 'Machines are emulated in software: about 18 times slower at computing.';
  if (serverStatus?.accelerator === 'kvm') return ok('kvm', serverStatus.acceleratorReason ?? 'in use');
  if (serverStatus?.accelerator === 'tcg') {
    return warn('kvm', `not in use: ${serverStatus.acceleratorReason ?? 'the probe failed'}`, slow);
  }
  if (!exists('/dev/kvm')) {
    return warn(
      'kvm',
      'there is no /dev/kvm',
      `${slow} In a virtual machine, turn on nested virtualisation.`,
    );
  }
  if (!canOpen('/dev/kvm')) {
    return warn('kvm', '/dev/kvm cannot be opened', `${slow} Add yourself to the group kvm, or run as root.`);
  }
  return ok('kvm', '/dev/kvm opens; whether a guest really starts on it, the first `up` finds out');
};

/** Memory that can be offered. */
export const memory: Check = ({ memoryBytes }) => {
  const seen = `${bytes(memoryBytes)} in all`;
  if (memoryBytes < 2 * 2 ** 30)
    return fail('memory', seen, '2 GiB are kept for the host; nothing is left to offer.');
  if (memoryBytes < 4 * 2 ** 30)
    return warn('memory', seen, 'Room for few sandboxes; 2 GiB are kept for the host.');
  return ok('memory', seen);
};

/** Free space of the data folder. */
export const disk: Check = ({ dataFolder, freeBytes }) => {
  const free = freeBytes(dataFolder);
  if (free === undefined)
    return warn('disk', `${dataFolder} cannot be looked at`, 'Choose another with --data.');
  const seen = `${bytes(free)} free for ${dataFolder}`;
  if (free < 2 * 2 ** 30)
    return fail('disk', seen, 'Images and templates need a few GiB: free some, or use --data.');
  if (free < 10 * 2 ** 30)
    return warn('disk', seen, 'Enough for a few images; `sandlot image prune` frees some.');
  return ok('disk', seen);
};

/** A clock that is far off breaks TLS, and guests take theirs from it. */
export const clock: Check = ({ nowMs }) => {
  const seen = new Date(nowMs).toISOString();
  return nowMs < Date.UTC(2025, 0, 1)
    ? fail('clock', seen, 'The clock is years behind: registries refuse it. Set the time.')
    : ok('clock', seen);
};

/** The API's port. */
export const port: Check = async ({ canListen, serverStatus, listen: { host, port } }) => {
  const address = `${host}:${port}`;
  if (serverStatus) return ok('port', `${address} is the server's`);
  return (await canListen(host, port))
    ? ok('port', `${address} is free`)
    : warn(
        'port',
        `${address} is taken by something else`,
        'Choose another: `sandlot up --listen 127.0.0.1:PORT`.',
      );
};
