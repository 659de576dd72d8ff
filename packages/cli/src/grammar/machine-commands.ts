/** `up`, `down`, `status`, `doctor`, `config`, `completion`: the server on this machine and the command line itself. */
import { type Command, Option } from 'commander';
import { type Binder, collect, numberAbove, outputOption } from './binder.js';

/** Adds the commands. */
export function addMachineCommands(parent: Command, binder: Binder): void {
  binder.bind(
    parent
      .command('up')
      .description('start the server on this machine, in the foreground unless --detach')
      .option('-d, --detach', 'start it in the background')
      .option('--restart', 'renew the daemons; running sandboxes go on')
      .option('--if-stale', 'renew them only where they are older than this build')
      .option('--data <folder>', 'data folder (SANDLOT_DATA)')
      .option('--listen <address>', 'address and port of the API (127.0.0.1:7070)')
      .option('--public-url <url>', 'URL under which clients reach it')
      .option('--tls-cert <file>', 'serve https with this certificate (PEM, with its chain); needs --tls-key')
      .option('--tls-key <file>', 'private key of the certificate (PEM)')
      .option(
        '--trusted-proxy <address>',
        'believe the X-Forwarded headers of this address or CIDR; may be repeated',
        collect,
      )
      .option('--cpu-overcommit <n>', 'offer cores times this (8)', numberAbove(0))
      .option('--memory-overcommit <n>', 'offer memory times this (2)', numberAbove(0))
      .option('--disk-overcommit <n>', 'offer free disk times this (4)', numberAbove(0))
      .option('--allow-private <cidr>', 'sandboxes may reach this private range; may be repeated', collect)
      .option(
        '--allow-host-port <port>',
        'sandboxes may reach this port of the host; may be repeated',
        collect,
      )
      .option('--subnet <cidr>', 'addresses of the host side (a free /20 of 10.77.0.0/16)')
      .option(
        '--rootless-network',
        "without root or /dev/net/tun: network for sandboxes, which then reach this host's loopback",
      )
      .addOption(new Option('--kvm <mode>', 'use KVM where it works, or never').choices(['auto', 'never']))
      .option('--cpu-model <name>', "the processor that guests on KVM see, by QEMU's name (host)")
      .option('--guest-assets <folder>', 'folder with kernel, initramfs and modules disk of the guest')
      .option(
        '--insecure-registry <host>',
        'pull from this registry over plain http; may be repeated',
        collect,
      )
      .option('--pool-size <n>', 'network namespaces made ahead (8)', numberAbove(0))
      .addOption(new Option('--driver <name>').choices(['qemu', 'fake']).hideHelp())
      .addOption(new Option('--agent-binary <file>').hideHelp())
      .addOption(new Option('--prebuild <shape>').argParser(collect).hideHelp())
      .addOption(outputOption()),
    () => import('../actions/up.js'),
  );
  binder.bind(
    parent
      .command('down')
      .description('end all sandboxes and the server; images, templates and records stay')
      .option('--data <folder>', 'data folder (SANDLOT_DATA)')
      .addOption(outputOption()),
    () => import('../actions/down.js'),
  );
  binder.bind(
    parent
      .command('status')
      .description('show the server: version, accelerator, processes, counts')
      .addOption(outputOption()),
    () => import('../actions/status.js'),
  );
  binder.bind(
    parent
      .command('doctor')
      .description('check what this host can and cannot do, and why')
      .option('--data <folder>', 'data folder (SANDLOT_DATA)')
      .option('--guest-assets <folder>', 'folder with kernel, initramfs and modules disk of the guest')
      .addOption(outputOption()),
    () => import('../actions/doctor.js'),
  );
  const config = parent.command('config').description('show or change settings').addOption(outputOption());
  binder.bind(config, () => import('../actions/config-show.js'));
  binder.bind(
    config
      .command('set')
      .description('keep a setting in the configuration file; an empty value removes it')
      .argument('<name>', 'url, api_key or data')
      .argument('<value>', 'its value'),
    () => import('../actions/config-set.js'),
  );
  const completion = parent
    .command('completion')
    .description('print a completion script for a shell')
    .argument('<shell>', 'bash, zsh or fish')
    .addHelpText(
      'after',
      `
bash: sandlot completion bash > ~/.local/share/bash-completion/completions/sandlot
zsh:  sandlot completion zsh > "\${fpath[1]}/_sandlot"
fish: sandlot completion fish > ~/.config/fish/completions/sandlot.fish`,
    );
  binder.bind(completion, async () => {
    const { completionAction } = await import('../actions/completion.js');
    return completionAction(rootOf(parent));
  });
}

function rootOf(command: Command): Command {
  return command.parent ? rootOf(command.parent) : command;
}
