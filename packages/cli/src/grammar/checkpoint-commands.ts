/** `checkpoint create|ls|get|rm` and `rollback`. */
import type { Command } from 'commander';
import { type Binder, numberAbove, outputOption } from './binder.js';

/** Adds the commands. */
export function addCheckpointCommands(parent: Command, binder: Binder): void {
  const checkpoint = parent
    .command('checkpoint')
    .description('save sandboxes, to begin others with or to go back to');
  binder.bind(
    checkpoint
      .command('create')
      .description(
        'save a sandbox that runs, and goes on, or is paused, and stays so; prints the id of the checkpoint',
      )
      .argument('<id>', 'id of the sandbox or a unique beginning of one')
      .option('--with-memory', 'memory and processes too, of the same instant; else the disk alone')
      .option('--ttl <seconds>', 'it is deleted after this', numberAbove(0))
      .addOption(outputOption()),
    () => import('../actions/checkpoint-create.js'),
  );
  binder.bind(
    checkpoint
      .command('ls')
      .alias('list')
      .description('list checkpoints, oldest first: those of a sandbox, or all')
      .argument('[id]', 'id of the sandbox or a unique beginning of one; the whole id of one that is gone')
      .option('-q, --quiet', 'print ids only')
      .addOption(outputOption()),
    () => import('../actions/checkpoint-list.js'),
  );
  binder.bind(
    checkpoint
      .command('get')
      .description('show a checkpoint: state, sizes, why it failed')
      .argument('<checkpoint>', 'id or a unique beginning of one')
      .addOption(outputOption()),
    () => import('../actions/checkpoint-get.js'),
  );
  binder.bind(
    checkpoint
      .command('rm')
      .alias('delete')
      .description('delete checkpoints; what was made from them lives on')
      .argument('<checkpoints...>', 'ids or unique beginnings')
      .addOption(outputOption()),
    () => import('../actions/checkpoint-remove.js'),
  );
  binder.bind(
    parent
      .command('rollback')
      .description('put a sandbox back to a checkpoint of it; what it did since is gone')
      .argument('<id>', 'id or a unique beginning of one')
      .argument('<checkpoint>', 'id or a unique beginning of one')
      .option(
        '--disk-only',
        'its disk alone, and the machine boots; else memory too, if the checkpoint has some',
      )
      .addOption(outputOption()),
    () => import('../actions/rollback.js'),
  );
}
