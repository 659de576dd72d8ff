/** Completion: made from the tree, and understood by the shells that are here. */
import { execFileSync, spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { completionScript, completionTree } from '../src/completion.js';
import { buildProgram } from '../src/program.js';

const program = buildProgram({ stdout: process.stdout, stderr: process.stderr } as never, () => undefined);

/** What bash offers after these words. */
function complete(...words: string[]): string[] {
  const script = `${completionScript('bash', program)}
sandlot() { [ "$*" = 'ls --quiet' ] && echo id-one id-two; }
COMP_WORDS=(sandlot "$@"); COMP_CWORD=$#
_sandlot
printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync('bash', ['-c', script, 'bash', ...words], { encoding: 'utf8' })
    .trim()
    .split('\n');
}

describe('bash', () => {
  it('offers commands, sub-commands and options', () => {
    expect(complete('im')).toEqual(['image']);
    expect(complete('image', 'p')).toEqual(['pull', 'prune']);
    expect(complete('create', '--mem')).toEqual(['--memory']);
    expect(complete('sandbox', 'cr')).toEqual(['create']);
    expect(complete('up', '--driv')).not.toContain('--driver');
  });

  it('offers ids where a sandbox is wanted', () => {
    expect(complete('run', 'id-')).toEqual(['id-one', 'id-two']);
    expect(complete('sandbox', 'get', 'id-o')).toEqual(['id-one']);
    expect(complete('create', 'id-')).not.toContain('id-one');
  });

  it('offers nothing of ours after --', () => {
    expect(complete('run', 'x', '--', 'cr')).toEqual(['']);
  });
});

describe('zsh and fish', () => {
  it('know every command and every public option', () => {
    for (const shell of ['zsh', 'fish']) {
      const script = completionScript(shell, program) ?? '';
      for (const node of completionTree(program)) {
        for (const { name } of node.subcommands) expect(script).toContain(name);
        for (const { flags } of node.options) {
          for (const flag of flags)
            expect(script).toContain(shell === 'fish' ? flag.replace(/^-+/, '') : flag);
        }
      }
    }
  });

  it.skipIf(!isHere('zsh'))('zsh offers commands, options and ids (skipped where there is no zsh)', () => {
    // The completion system's own functions are replaced by ones that print what they are given.
    const offer = (...words: string[]) =>
      execFileSync(
        'zsh',
        [
          '-f',
          '-c',
          `compdef() {}; _files() {}; compadd() { print -l -- \${(P)2} }; _describe() { print -l -- \${(P)4} }
sandlot() { print -l id-one id-two }
${completionScript('zsh', program)}
words=(sandlot "$@"); CURRENT=$#words; _sandlot`,
          'zsh',
          ...words,
        ],
        { encoding: 'utf8' },
      )
        .trim()
        .split('\n');
    expect(offer('image', '')).toContain('pull:pull an image from its registry and make it ready to start');
    expect(offer('sandbox', 'create', '-')).toContain('--cpu:CPUs, 0.1 to 16 (1)');
    expect(offer('run', '')).toEqual(expect.arrayContaining(['id-one', 'id-two']));
    expect(offer('create', '')).not.toContain('id-one');
    expect(offer('run', 'id', '--', '')).toEqual(['']);
  });

  it.skipIf(!isHere('fish'))(
    'fish offers commands, options and values (skipped where there is no fish)',
    () => {
      const offer = (line: string) => {
        const script = `source (echo $argv[1] | psub); complete -C $argv[2]`;
        const done = spawnSync(
          'fish',
          ['--no-config', '-c', script, completionScript('fish', program) ?? '', line],
          {
            encoding: 'utf8',
            cwd: '/proc/self/fdinfo',
          },
        );
        expect(done.stderr).toBe('');
        return done.stdout.split('\n').map((one) => one.split('\t')[0]);
      };
      expect(offer('sandlot im')).toContain('image');
      expect(offer('sandlot image p')).toEqual(expect.arrayContaining(['pull', 'prune']));
      expect(offer('sandlot create --mem')).toContain('--memory');
      expect(offer('sandlot up --kvm ')).toEqual(expect.arrayContaining(['auto', 'never']));
      expect(offer('sandlot image --mem')).not.toContain('--memory');
    },
  );
});

function isHere(shell: string): boolean {
  return !spawnSync(shell, ['-c', 'exit 0']).error;
}
