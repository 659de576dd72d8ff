/** `sandlot completion bash|zsh|fish`. */
import type { Command } from 'commander';
import { CliError, exitCodes } from '../cli-error.js';
import { completionScript } from '../completion.js';
import type { ActionModule } from '../grammar/binder.js';

/** The action, for the tree that it belongs to. */
export function completionAction(program: Command): ActionModule<[string], object> {
  return {
    async run(context, [shell]) {
      const script = completionScript(shell, program);
      if (script === undefined) {
        throw new CliError(`there is no completion for "${shell}"`, {
          hint: 'Shells: bash, zsh, fish.',
          exitCode: exitCodes.usage,
        });
      }
      context.stdout.write(script);
    },
  };
}
