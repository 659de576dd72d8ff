/** `upload` and `download`. */
import type { Command } from 'commander';
import { type Binder, outputOption } from './binder.js';

/** Adds the commands. */
export function addFileCommands(parent: Command, binder: Binder): void {
  binder.bind(
    parent
      .command('upload')
      .description('copy a file or a whole folder into a sandbox')
      .argument('<id>', 'id or a unique beginning of one')
      .argument('<local>', 'file, folder, or - for standard input')
      .argument('<remote>', 'path in the sandbox; missing folders are made; one that ends in / is a folder')
      .addOption(outputOption()),
    () => import('../actions/upload.js'),
  );
  binder.bind(
    parent
      .command('download')
      .description('copy a file or a whole folder out of a sandbox')
      .argument('<id>', 'id or a unique beginning of one')
      .argument('<remote>', 'path in the sandbox')
      .argument('<local>', 'file, folder, or - for standard output (of a folder: a tar stream)')
      .addOption(outputOption()),
    () => import('../actions/download.js'),
  );
}
