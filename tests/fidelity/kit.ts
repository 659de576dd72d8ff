/** Makes what every place gets: programs compiled on this host, scripts, and the list of probes. Used by main.ts and the e2e test. */
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Probe } from './catalogue.js';

/** Fills `folder`. The lookup by musl needs musl-gcc; without it that program is left out. */
export function buildKit(sources: string, folder: string, probes: readonly Probe[]): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const programs = readdirSync(sources).filter((name) => name.endsWith('.c') && name !== 'resolve.c');
  compile('cc', [...programs.map((name) => join(sources, name))], join(folder, 'probe'));
  for (const name of ['run.py', 'listings.py', 'tools.sh']) {
    copyFileSync(join(sources, name), join(folder, name));
    chmodSync(join(folder, name), 0o755);
  }
  const list = probes.map(({ id, kind, seconds }) => [id, kind, seconds]);
  writeFileSync(join(folder, 'probes.json'), JSON.stringify(list));
  if (isThere('musl-gcc')) compile('musl-gcc', [join(sources, 'resolve.c')], join(folder, 'resolve-musl'));
}

function compile(compiler: string, sources: string[], out: string): void {
  execFileSync(compiler, ['-static', '-O1', '-Wall', '-o', out, ...sources], { timeout: 120_000 });
}

function isThere(program: string): boolean {
  try {
    execFileSync(program, ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}
