/** Ties commands to their actions, which are loaded when they run, and holds the options that many commands have. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { CliContext } from '../context.js';

/** An action's module: resolves with the exit code, nothing for 0. */
export interface ActionModule<Arguments extends unknown[], Options> {
  run(context: CliContext, args: Arguments, options: Options): Promise<number> | Promise<void>;
}

/** Ties commands to actions for one context. */
export class Binder {
  constructor(
    private readonly context: CliContext,
    private readonly onResult: (code: number) => void,
  ) {}

  /** Makes `command` run the module's action with its arguments and options. */
  bind<Arguments extends unknown[], Options>(
    command: Command,
    load: () => Promise<ActionModule<Arguments, Options>>,
  ): Command {
    return command.action(async () => {
      const action = await load();
      const code = await action.run(
        this.context,
        command.processedArgs as Arguments,
        command.optsWithGlobals() as unknown as Options,
      );
      this.onResult(code ?? 0);
    });
  }
}

/** Options of commands that print something. */
export interface OutputOptions {
  output: 'table' | 'json';
}

/** `-o, --output table|json`. */
export function outputOption(): Option {
  return new Option('-o, --output <form>', 'form of the result').choices(['table', 'json']).default('table');
}

/** Collects a repeatable option. */
export function collect(value: string, previous: string[] | undefined): string[] {
  return [...(previous ?? []), value];
}

/** A number above `above`. */
export function numberAbove(above: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (text.trim() === '' || !Number.isFinite(value) || value <= above) {
      throw new InvalidArgumentError(`It must be a number above ${above}.`);
    }
    return value;
  };
}
