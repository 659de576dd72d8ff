/**
 * Options of `run` may stand before and after the ID, but whatever follows the first word of the
 * command belongs to the command: `run ID -t ls -la`. The parser knows only the first half of this,
 * so the words are put in its order here: options, ID, `--`, command.
 */
import type { Command } from 'commander';

/** Rewrites the words of a `run`; all others come back as they were. Options are read off the command itself. */
export function normalizeRunArguments(args: readonly string[], program: Command): string[] {
  const at = runPosition(args);
  if (at < 0) return [...args];
  const run = program.commands.find((command) => command.name() === 'run');
  if (!run) return [...args];
  const rest = args.slice(at + 1);
  const options: string[] = [];
  let id: string | undefined;
  let hasImage = false;
  let index = 0;
  for (; index < rest.length; index++) {
    const word = rest[index] as string;
    if (word === '--') {
      index++;
      break;
    }
    if (word.startsWith('-') && word !== '-') {
      if (word === '--image' || word.startsWith('--image=')) hasImage = true;
      options.push(word);
      const value = rest[index + 1];
      if (takesNextWord(run, word) && value !== undefined) {
        options.push(value);
        index++;
      }
    } else if (id === undefined && !hasImage) id = word;
    else break;
  }
  // With `--image` after it, what looked like an id stays where it is: the action refuses the mixture.
  return [
    ...args.slice(0, at + 1),
    ...options,
    '--',
    ...(id === undefined ? [] : [id]),
    ...rest.slice(index),
  ];
}

function runPosition(args: readonly string[]): number {
  if (args[0] === 'run') return 0;
  return args[0] === 'sandbox' && args[1] === 'run' ? 1 : -1;
}

function takesNextWord(run: Command, word: string): boolean {
  if (word.startsWith('--')) {
    if (word.includes('=')) return false;
    return run.options.some((option) => option.long === word && option.required);
  }
  // `-e X`, `-itw DIR`: only the last letter of a group can take the next word.
  const letters = [...word.slice(1)];
  for (const [position, letter] of letters.entries()) {
    const option = run.options.find((candidate) => candidate.short === `-${letter}`);
    if (option?.required) return position === letters.length - 1;
  }
  return false;
}
