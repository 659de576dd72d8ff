/** `create`, `run`, `ls`, `get`, `logs`, `fork`, `pause`, `resume`, `rm`: added to the program and, as the long form, to `sandbox`. */
import { type Command, Option } from 'commander';
import { type Binder, collect, numberAbove, outputOption } from './binder.js';

/** Adds the commands. */
export function addSandboxCommands(parent: Command, binder: Binder): void {
  const create = parent
    .command('create')
    .description('create a sandbox from an image or a checkpoint; prints its id on the last line')
    .usage(
      '[options] IMAGE [-- COMMAND…]\n       sandlot create [options] --checkpoint CHECKPOINT [-- COMMAND…]',
    )
    .argument('[image]', 'image reference, such as python:3.11-slim')
    .argument('[command...]', 'start command, after --; it runs beside whatever `run` starts')
    .option('--checkpoint <id>', 'begin with the disk of this checkpoint, in place of an image')
    .option('--restore-memory', 'go on with its memory too, processes and all')
    .option('--start-command <line>', 'start command as a line for /bin/sh')
    .option('--entrypoint', "start the image's own ENTRYPOINT and CMD")
    .option('--init', "the image's own init (systemd, say) becomes process 1")
    .option('--no-wait', 'do not wait until it runs')
    .option('--wait', 'wait until it runs (the default)')
    .addOption(outputOption());
  addShapeOptions(create);
  addViewOptions(create, 'what every command sees of it; not the start command:');
  binder.bind(create, () => import('../actions/create.js'));

  const run = parent
    .command('run')
    .description('run a command in a sandbox, or with --image in a new one that is removed after')
    .argument('[id-and-command...]', 'ID [--] COMMAND… ; with --image only COMMAND…')
    .usage('[options] ID [--] COMMAND…\n       sandlot run [options] --image IMAGE [--] COMMAND…')
    .option('-i, --stdin', 'pass standard input on')
    .option('-t, --tty', 'run on a terminal')
    .option('-w, --workdir <path>', "working directory (the image's otherwise)")
    .option('-u, --user <user>', "user, uid, user:group or uid:gid (the image's otherwise)")
    .option('--image <image>', 'make a new sandbox from this image, and remove it after')
    .addOption(outputOption());
  addViewOptions(run, "what the command sees, in place of the sandbox's own view:").option(
    '--no-view',
    'outside of any view',
  );
  run.optionsGroup('Options:');
  addShapeOptions(run, { timeout: 'end the command after this: 90 (seconds), 5m, 2h' });
  run.passThroughOptions();
  binder.bind(run, () => import('../actions/run.js'));

  binder.bind(
    parent
      .command('ls')
      .alias('list')
      .description('list sandboxes that live')
      .option('-a, --all', 'also those that have ended (kept for seven days)')
      .option('-l, --label <label>', 'only with this label; may be repeated', collect)
      .option('--status <status>', 'only in this state, such as RUNNING')
      .option('--team <team>', 'only of this team')
      .option('-q, --quiet', 'print ids only')
      .addOption(outputOption()),
    () => import('../actions/list.js'),
  );

  binder.bind(
    parent
      .command('get')
      .description('show a sandbox: state, shape, timings, why it ended')
      .argument('<id>', 'id or a unique beginning of one')
      .addOption(outputOption()),
    () => import('../actions/get.js'),
  );

  binder.bind(
    parent
      .command('logs')
      .description('print the output of the start command, newest 1 MiB')
      .argument('<id>', 'id or a unique beginning of one')
      .addOption(outputOption()),
    () => import('../actions/logs.js'),
  );

  binder.bind(
    parent
      .command('fork')
      .description('make running copies of a sandbox, processes and all, which goes on; prints an id a line')
      .argument('<id>', 'id or a unique beginning of one')
      .option('-n, --count <n>', 'how many, 1 to 64 (1)', numberAbove(0))
      .option('-l, --label <label>', "label in place of the source's; may be repeated", collect)
      .option(
        '-e, --env <name=value>',
        "environment variable over the source's, for commands started from now on; NAME alone takes the value from here",
        collect,
      )
      .option('--name <name>', "name in place of the source's")
      .option('--timeout <time>', 'ends after this, in whole minutes: 90 (minutes), 2h, 1d; -1 never')
      .option('--partial', 'keep the copies that run when others do not')
      .addOption(outputOption()),
    () => import('../actions/fork.js'),
  );

  binder.bind(
    parent
      .command('pause')
      .description('save sandboxes, processes and all, and free their memory; the next use lets one go on')
      .argument('<ids...>', 'ids or unique beginnings')
      .addOption(outputOption()),
    () => import('../actions/pause.js'),
  );

  binder.bind(
    parent
      .command('resume')
      .description('let paused sandboxes go on')
      .argument('<ids...>', 'ids or unique beginnings')
      .addOption(outputOption()),
    () => import('../actions/resume.js'),
  );

  binder.bind(
    parent
      .command('rm')
      .alias('delete')
      .description('end and remove sandboxes')
      .argument('[ids...]', 'ids or unique beginnings')
      .option('-l, --label <label>', 'all with this label; may be repeated (all of them)', collect)
      .option('--all', 'all of your own; asks first on a terminal')
      .option('-y, --yes', 'do not ask')
      .addOption(outputOption()),
    () => import('../actions/remove.js'),
  );
}

/** Options of a view; docs/views.md says what one holds. */
function addViewOptions(command: Command, title: string): Command {
  return command
    .optionsGroup(`A view, ${title}`)
    .option('--hide <path>', 'this path is empty in it; may be repeated', collect)
    .option('--read-only <path>', 'this path cannot be written in it; may be repeated', collect)
    .option('--private-tmp', 'a /tmp of its own')
    .addOption(
      new Option(
        '--view-strength <strength>',
        'sealed (the default): also for root; mask: root can undo it',
      ).choices(['sealed', 'mask']),
    )
    .option('--view <json-or-file>', 'all of it as JSON, as in the API');
}

/** Options of a new sandbox; `run` gives `--timeout` a meaning of its own, and the others only with `--image`. */
function addShapeOptions(command: Command, run?: { timeout: string }): void {
  command.option(
    '-e, --env <name=value>',
    'environment variable; NAME alone takes the value from here',
    collect,
  );
  if (run)
    command.option('--timeout <time>', run.timeout).optionsGroup('Only with --image, for the new sandbox:');
  command
    .option('--cpu <n>', 'CPUs, 0.1 to 16 (1)', numberAbove(0))
    .option('--memory <gib>', 'memory in GiB (2)', numberAbove(0))
    .option('--disk <gib>', 'disk in GiB (10)', numberAbove(0))
    .option('--secret <name=value>', 'like --env, never shown again', collect)
    .option('-l, --label <label>', 'label; may be repeated', collect)
    .option('--name <name>', 'name; need not be unique')
    .option('--team <team>', 'the sandbox belongs to this team')
    .option('--network-allow <host>', 'may reach only this name, address or range; may be repeated', collect)
    .option('--network-deny <host>', 'may not reach this; may be repeated; "*" is everything', collect);
  if (run) return;
  command
    .option('--timeout <time>', 'ends after this, in whole minutes: 90 (minutes), 2h, 1d; -1 never (60)')
    .option('--idle-timeout <time>', 'ends after this long without use: 15 (minutes), 1h (never)')
    .addOption(
      new Option(
        '--idle-action <action>',
        'what becomes of it then: end (the default); pause: its next use lets it go on',
      ).choices(['end', 'pause']),
    );
}
