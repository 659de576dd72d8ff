/** The user `sandlot`, as which everything runs that need not be root. Made by the first `up` of root. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { CliError } from '../cli-error.js';

/** Name of the user and of its group. */
export const serviceUserName = 'sandlot';

/** Ids of a user. */
export interface UserIds {
  uid: number;
  gid: number;
}

/** One line of passwd(5). */
export interface PasswdEntry extends UserIds {
  name: string;
  home: string;
}

/** The user's entry, from the local file. */
export function findUser(
  name: string,
  passwd = readFileSync('/etc/passwd', 'utf8'),
): PasswdEntry | undefined {
  for (const line of passwd.split('\n')) {
    const [user, , uid, gid, , home] = line.split(':');
    if (user === name) return { name, uid: Number(uid), gid: Number(gid), home: home ?? '/' };
  }
  return undefined;
}

/** Finds the service user, or makes it. Only as root. */
export function ensureServiceUser(): UserIds {
  const found = findUser(serviceUserName);
  if (found) return found;
  try {
    execFileSync(
      'useradd',
      [
        '--system',
        '--user-group',
        '--no-create-home',
        '--home-dir',
        '/nonexistent',
        '--shell',
        '/usr/sbin/nologin',
        serviceUserName,
      ],
      { stdio: ['ignore', 'ignore', 'pipe'], timeout: 30_000 },
    );
  } catch (cause) {
    throw new CliError(`the system user "${serviceUserName}" cannot be made`, {
      cause,
      hint: 'Install useradd (Debian: apt-get install passwd), or make the user yourself: useradd --system sandlot',
    });
  }
  const made = findUser(serviceUserName);
  if (!made) {
    throw new CliError(`useradd made the user "${serviceUserName}", but /etc/passwd does not have it`, {
      hint: 'Where users come from a directory service, make this one by hand in /etc/passwd.',
    });
  }
  return made;
}
