/**
 * Finds or builds the container runtimes of the fidelity table: Debian's runc with Docker's seccomp profile, and gVisor.
 * Profile and gVisor are Go modules of fixed versions, checked by Go's checksum database, kept in .cache/go.
 * A runtime that cannot be had is a reason, not an error: its column says so.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type DockerProfile, ociSeccomp } from './bundle.js';
import type { Runtime } from './container.js';
import type { Inputs } from './place.js';

const profileModule = 'github.com/moby/profiles/seccomp';
const profileVersion = 'v0.2.4';
const gvisorModule = 'gvisor.dev/gvisor';
const gvisorVersion = 'v0.0.0-20260701204157-69c2d17aea96';
/** Oldest Go that the module takes. */
const gvisorGo = '1.26.0';
const buildTimeoutMs = 900_000;

/** A runtime, or why there is none. */
export type Found = Runtime | { name: string; missing: string };

/** runc of the host's packages with Docker's default seccomp profile. */
export function findRunc(inputs: Inputs): Found {
  const name = 'runc';
  try {
    const version = run('runc', ['--version']).split('\n')[0] ?? '';
    const profile = JSON.parse(
      readFileSync(join(profileFolder(inputs), 'default.json'), 'utf8'),
    ) as DockerProfile;
    const about = `${version}, Docker's default capabilities, paths and seccomp profile (${profileModule} ${profileVersion}), host kernel ${run('uname', ['-r']).trim()}, network: the plain VM's addresses, no way out`;
    return { name, binary: 'runc', about, seccomp: ociSeccomp(profile) };
  } catch (error) {
    return { name, missing: reason(error) };
  }
}

/** gVisor, built once. */
export function findGvisor(inputs: Inputs): Found {
  const name = 'gVisor';
  try {
    const binary = buildGvisor(inputs);
    const about = `runsc ${gvisorVersion}, systrap, Docker's default capabilities, network: the plain VM's addresses, no way out`;
    return { name, binary, about, seccomp: undefined };
  } catch (error) {
    return { name, missing: reason(error) };
  }
}

function profileFolder(inputs: Inputs): string {
  const folder = join(inputs.root, '.cache/go', `docker-seccomp-${profileVersion}`);
  if (existsSync(folder)) return folder;
  const answer = go(inputs, ['mod', 'download', '-json', `${profileModule}@${profileVersion}`], tmpdir());
  const { Dir } = JSON.parse(answer) as { Dir: string };
  mkdirSync(`${folder}.new`, { recursive: true });
  writeFileSync(join(`${folder}.new`, 'default.json'), readFileSync(join(Dir, 'default.json')));
  renameSync(`${folder}.new`, folder);
  return folder;
}

function buildGvisor(inputs: Inputs): string {
  const binary = join(inputs.root, '.cache/go', `runsc-${gvisorVersion}`);
  if (existsSync(binary)) return binary;
  inputs.say('gVisor: building (some minutes, once)');
  const work = mkdtempSync(join(tmpdir(), 'sandlot-gvisor-'));
  try {
    // A module that requires it: `go install` of a branch without tags asks for lists that a proxy may not have.
    const module = `module sandlot/fidelity\n\ngo ${gvisorGo}\n\nrequire ${gvisorModule} ${gvisorVersion}\n`;
    writeFileSync(join(work, 'go.mod'), module);
    const flags = ['-mod=mod', '-p', '2', '-trimpath', '-ldflags', '-s -w', '-o', `${binary}.new`];
    go(inputs, ['build', ...flags, `${gvisorModule}/runsc`], work);
    renameSync(`${binary}.new`, binary);
    return binary;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

function go(inputs: Inputs, args: string[], cwd: string): string {
  mkdirSync(join(inputs.root, '.cache/go'), { recursive: true });
  return execFileSync('nice', ['-n', '10', 'go', ...args], {
    cwd,
    encoding: 'utf8',
    timeout: buildTimeoutMs,
    maxBuffer: 64 * 2 ** 20,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...process.env,
      CGO_ENABLED: '0',
      GOPATH: join(inputs.root, '.cache/go/path'),
      GOFLAGS: '-modcacherw',
    },
  });
}

function run(program: string, args: string[]): string {
  return execFileSync(program, args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 10_000,
  });
}

/** First line that says something. */
function reason(error: unknown): string {
  const { stderr, message } = error as { stderr?: string; message: string };
  return (stderr || message).trim().split('\n').at(-1)?.slice(0, 200) ?? 'unknown';
}
