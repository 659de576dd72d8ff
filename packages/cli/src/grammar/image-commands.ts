/** `image pull|import|ls|inspect|rm|prune`. */
import type { Command } from 'commander';
import { type Binder, outputOption } from './binder.js';

/** Adds the commands. */
export function addImageCommands(parent: Command, binder: Binder): void {
  const image = parent.command('image').description('images: pull, import, list, remove');
  binder.bind(
    image
      .command('pull')
      .description('pull an image from its registry and make it ready to start')
      .argument('<name>', 'image reference')
      .option('--username <name>', "user at the registry (otherwise Docker's login, ~/.docker/config.json)")
      .option('--password-stdin', 'read the password or token from standard input')
      .addOption(outputOption()),
    () => import('../actions/image-pull.js'),
  );
  binder.bind(
    image
      .command('import')
      .description('import a docker-archive, an OCI layout (folder or tar) or a tar of a root file system')
      .argument('<file>', 'archive, folder, or - for standard input')
      .argument('<name>', 'name to give it, such as my/image:1')
      .addOption(outputOption()),
    () => import('../actions/image-import.js'),
  );
  binder.bind(
    image
      .command('ls')
      .alias('list')
      .description('list images')
      .option('-q, --quiet', 'print names only')
      .addOption(outputOption()),
    () => import('../actions/image-list.js'),
  );
  binder.bind(
    image
      .command('inspect')
      .description('show an image: digest, configuration, layers')
      .argument('<name>', 'image reference')
      .addOption(outputOption()),
    () => import('../actions/image-inspect.js'),
  );
  binder.bind(
    image
      .command('rm')
      .alias('remove')
      .description('remove images that no sandbox uses')
      .argument('<names...>', 'image references')
      .addOption(outputOption()),
    () => import('../actions/image-remove.js'),
  );
  binder.bind(
    image
      .command('prune')
      .description('remove every image that no sandbox uses, also one that came a second ago')
      .addOption(outputOption()),
    () => import('../actions/image-prune.js'),
  );
}
