/** `user`, `team`, `key`: need an admin's key, or the admin socket of the server on this machine. */
import type { Command } from 'commander';
import { type Binder, outputOption } from './binder.js';

/** Adds the commands. */
export function addAccountCommands(parent: Command, binder: Binder): void {
  const user = parent.command('user').description('users');
  binder.bind(
    user
      .command('create')
      .description('make a user')
      .argument('<name>')
      .option('--admin', 'with all rights')
      .addOption(outputOption()),
    async () => (await import('../actions/users.js')).create,
  );
  binder.bind(
    user.command('ls').alias('list').description('list users').addOption(outputOption()),
    async () => (await import('../actions/users.js')).list,
  );

  const team = parent.command('team').description('teams');
  binder.bind(
    team.command('create').description('make a team').argument('<name>').addOption(outputOption()),
    async () => (await import('../actions/teams.js')).create,
  );
  binder.bind(
    team
      .command('add')
      .description('add a user to a team, or change the role there')
      .argument('<team>')
      .argument('<user>')
      .option('--role <role>', 'admin or member', 'member'),
    async () => (await import('../actions/teams.js')).add,
  );
  binder.bind(
    team.command('ls').alias('list').description('list teams and their members').addOption(outputOption()),
    async () => (await import('../actions/teams.js')).list,
  );

  const key = parent.command('key').description('API keys');
  binder.bind(
    key
      .command('create')
      .description('make a key; it is printed once, on the last line')
      .option('--user <user>', 'for this user (otherwise your own)')
      .option('--name <name>', 'to tell it from others')
      .addOption(outputOption()),
    async () => (await import('../actions/keys.js')).create,
  );
  binder.bind(
    key.command('ls').alias('list').description('list keys').addOption(outputOption()),
    async () => (await import('../actions/keys.js')).list,
  );
  binder.bind(
    key.command('revoke').description('make a key worthless').argument('<id>', 'id as in `key ls`'),
    async () => (await import('../actions/keys.js')).revoke,
  );
}
