/** Whether the image's own init is to be process 1 of a sandbox, and which program that is. Pure. Used by `boot-machine.ts`. */
import type { GuestInit, NodeSandboxSpec } from '@sandlot/protocol';

/** Where every distribution has its init, mostly as a link. */
const defaultInit = '/sbin/init';

/** Start commands that are an init. Only as the whole program: a script that starts one later is an ordinary command. */
const inits: ReadonlyMap<string, string> = new Map([
  ['init', defaultInit],
  [defaultInit, defaultInit],
  ...['/usr/sbin/init', '/lib/systemd/systemd', '/usr/lib/systemd/systemd', '/bin/systemd'].map(
    (path): [string, string] => [path, path],
  ),
]);

/** What a machine starts with: its process 1, and the command beside it. Empty lists: ours, none. */
export interface FirstPrograms {
  init: string[];
  startCommand: string[];
}

/** Tells a start command that is an init from one that is not. */
export function firstPrograms(
  { init, startCommand }: Pick<NodeSandboxSpec, 'init' | 'startCommand'>,
  image: GuestInit['image'],
): FirstPrograms {
  const argv = !startCommand
    ? []
    : 'argv' in startCommand
      ? startCommand.argv
      : [...image.entrypoint, ...image.cmd];
  const asInit = initOf(argv);
  if (asInit) return { init: asInit, startCommand: [] };
  return { init: init ? [defaultInit] : [], startCommand: argv };
}

function initOf(argv: readonly string[]): string[] | undefined {
  const [program = '', option, line = ''] = argv;
  const known = inits.get(program);
  if (known) return [known, ...argv.slice(1)];
  // A line for the shell that is nothing else.
  const ofLine =
    argv.length === 3 && /^\/bin\/(ba)?sh$/.test(program) && option === '-c' && inits.get(line.trim());
  return ofLine ? [ofLine] : undefined;
}
