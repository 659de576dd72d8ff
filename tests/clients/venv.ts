/**
 * Virtual environments with published Python packages, each by exact version and alone, as the clients of
 * Prime Sandboxes need it: an older one leaves packages behind with which no newer one starts. Kept in
 * `.cache/venvs` for the next run. Used by the tests of this folder.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const cache = path.resolve(import.meta.dirname, '../../.cache/venvs');
const installMs = 1_800_000;

/**
 * A complete environment, made if it is not there.
 * @param name for its folder and messages
 * @param packages what pip installs, as `name==version`
 * @param python program, as `pythonOf` finds it
 * @returns its `bin` folder
 */
export async function venv(name: string, packages: readonly string[], python = 'python3'): Promise<string> {
  const wanted = createHash('sha256')
    .update([python, ...packages].join('\n'))
    .digest('hex')
    .slice(0, 12);
  const folder = path.join(cache, `${name}-${wanted}`);
  const done = path.join(folder, '.complete');
  if (!existsSync(done)) {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(cache, { recursive: true });
    await run(python, ['-m', 'venv', folder], { timeout: installMs });
    const pip = path.join(folder, 'bin/pip');
    await run(pip, ['--quiet', 'install', '--disable-pip-version-check', ...packages], {
      timeout: installMs,
    });
    writeFileSync(done, '');
  }
  return path.join(folder, 'bin');
}

/**
 * The source distribution of a published package, unpacked: its own tests are in it. Made if it is not there.
 * @param bin `bin` folder of an environment, for its pip
 * @returns the unpacked folder
 */
export async function sourceOf(name: string, version: string, bin: string): Promise<string> {
  const folder = path.join(cache, `source-${name}-${version}`);
  const done = path.join(folder, '.complete');
  if (!existsSync(done)) {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    const asked = [
      'download',
      '--quiet',
      '--no-deps',
      '--no-binary',
      name,
      '--dest',
      folder,
      `${name}==${version}`,
    ];
    await run(path.join(bin, 'pip'), asked, { timeout: installMs });
    const archive = readdirSync(folder).find((file) => file.endsWith('.tar.gz'));
    if (!archive) throw new Error(`pip has brought no source archive of ${name} ${version}`);
    await run('tar', ['-xzf', path.join(folder, archive), '-C', folder, '--strip-components=1'], {
      timeout: installMs,
    });
    writeFileSync(done, '');
  }
  return folder;
}

/** The newest version of a package that pip of an environment would install now. Takes the network. */
export async function newestVersion(name: string, bin: string): Promise<string> {
  const asked = ['install', '--quiet', '--dry-run', '--no-deps', '--ignore-installed', '--report', '-', name];
  const { stdout } = await run(path.join(bin, 'pip'), asked, { timeout: installMs });
  const { install } = JSON.parse(stdout) as { install: { metadata: { version: string } }[] };
  const version = install[0]?.metadata.version;
  if (!version) throw new Error(`pip names no version of ${name}`);
  return version;
}

/** The newest installed Python of a minor version such as `3.12`: the system's, or one of pyenv; undefined if there is none. */
export async function pythonOf(minor: string): Promise<string | undefined> {
  const system = await run('sh', ['-c', `command -v python${minor}`]).catch(() => undefined);
  // pyenv's own wrapper is found also for versions that are not chosen.
  if (system && !system.stdout.includes('/shims/')) return system.stdout.trim();
  const root = await run('pyenv', ['root']).catch(() => undefined);
  if (!root) return undefined;
  const versions = path.join(root.stdout.trim(), 'versions');
  const found = readdirSync(versions)
    .filter((version) => version.startsWith(`${minor}.`))
    .sort();
  const newest = found.at(-1);
  return newest === undefined ? undefined : path.join(versions, newest, 'bin/python3');
}
