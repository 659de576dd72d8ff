/** The whole command tree. Its parts are in `grammar/`; actions are loaded only when they run. */
import { Command } from 'commander';
import type { CliContext } from './context.js';
import { addAccountCommands } from './grammar/account-commands.js';
import { Binder } from './grammar/binder.js';
import { addCheckpointCommands } from './grammar/checkpoint-commands.js';
import { addFileCommands } from './grammar/file-commands.js';
import { addImageCommands } from './grammar/image-commands.js';
import { addMachineCommands } from './grammar/machine-commands.js';
import { addSandboxCommands } from './grammar/sandbox-commands.js';
import { version } from './version.js';

/** Builds it; `onResult` gets the exit code of the action that ran. */
export function buildProgram(context: CliContext, onResult: (code: number) => void): Command {
  const program = new Command('sandlot')
    .description('Sandboxes: Linux microVMs from OCI images, on this machine or on a server.')
    .version(version(), '-V, --version', 'show the version')
    .helpOption('-h, --help', 'show help')
    .enablePositionalOptions()
    .showSuggestionAfterError()
    .exitOverride()
    .configureOutput({
      writeOut: (text) => context.stdout.write(text),
      writeErr: (text) => context.stderr.write(text),
      outputError: outputErrorOf('sandlot'),
    });
  const binder = new Binder(context, onResult);

  program.commandsGroup('Sandboxes:');
  addSandboxCommands(program, binder);
  addCheckpointCommands(program, binder);
  addFileCommands(program, binder);
  const sandbox = program
    .command('sandbox')
    .description('long form: `sandlot sandbox create …` is `sandlot create …`');
  addSandboxCommands(sandbox, binder);
  addFileCommands(sandbox, binder);

  program.commandsGroup('Images:');
  addImageCommands(program, binder);

  program.commandsGroup('Server on this machine:');
  addMachineCommands(program, binder);

  program.commandsGroup('Accounts:');
  addAccountCommands(program, binder);

  program.helpCommand(false);
  inherit(program);
  program.addHelpText(
    'after',
    `
Examples:
  sandlot up --detach
  id=$(sandlot create python:3.11-slim)
  sandlot run $id -- python3 -c "print('hello')"
  sandlot upload $id ./agent.py /root/agent.py
  sandlot rm $id

An ID may be shortened to any unique beginning. Results go to stdout, progress and hints to stderr.
Environment: SANDLOT_URL, SANDLOT_API_KEY, SANDLOT_DATA.
Exit codes: 0 done, 1 failed (64 to 78: refused by the server, see docs/errors.md), 2 wrong usage,
130 interrupted; \`run\` passes on the command's own code, 124 when its time is over, 125 when the
command could not be run.`,
  );
  return program;
}

/** Names the command that the words were for, so that its own help is one step away. */
function outputErrorOf(command: string) {
  return (text: string, write: (text: string) => void) => {
    // Of the commands, not of the program: a frequent slip.
    const isEarly = command === 'sandlot' && /unknown option '(--output|-o)/.test(text);
    const advice = isEarly ? '  Put --output after the command: `sandlot ls --output json`.\n' : '';
    write(`${command}: ${text.replace(/^error: /, '').trim()}\n${advice}  See \`${command} --help\`.\n`);
  };
}

function pathOf(command: Command): string {
  return command.parent ? `${pathOf(command.parent)} ${command.name()}` : command.name();
}

/** Sub-commands made by hand do not take these from their parent. */
function inherit(parent: Command): void {
  for (const command of parent.commands) {
    command.copyInheritedSettings(parent);
    command.configureOutput({ outputError: outputErrorOf(pathOf(command)) });
    command.helpCommand(false);
    inherit(command);
  }
}
