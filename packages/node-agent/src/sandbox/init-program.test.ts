/** Holds which start commands make the image's init process 1. */
import { describe, expect, it } from 'vitest';
import { firstPrograms } from './init-program.js';

const image = {
  env: [],
  user: '',
  workingDir: '',
  entrypoint: ['/usr/lib/systemd/systemd'],
  cmd: ['--unit=x'],
};

describe('the first programs of a machine', () => {
  it.each([
    [['/sbin/init'], ['/sbin/init']],
    [['init'], ['/sbin/init']],
    [
      ['/lib/systemd/systemd', '--show-status=0'],
      ['/lib/systemd/systemd', '--show-status=0'],
    ],
    [['/bin/sh', '-c', ' /sbin/init '], ['/sbin/init']],
    [['/bin/bash', '-c', 'init'], ['/sbin/init']],
  ])('%j is an init', (argv, init) => {
    expect(firstPrograms({ startCommand: { argv } }, image)).toEqual({ init, startCommand: [] });
  });

  it.each([
    [['/bin/sh', '-c', 'sleep 1; /sbin/init']],
    [['/usr/local/bin/init']],
    [['tail', '-f', '/dev/null']],
    [['/bin/sh', '/sbin/init']],
  ])('%j is not', (argv) => {
    expect(firstPrograms({ startCommand: { argv } }, image)).toEqual({ init: [], startCommand: argv });
  });

  it('is the image’s own when its entry point is one', () => {
    expect(firstPrograms({ startCommand: { entrypoint: true } }, image)).toEqual({
      init: ['/usr/lib/systemd/systemd', '--unit=x'],
      startCommand: [],
    });
  });

  it('may have a command beside the init that was asked for', () => {
    expect(firstPrograms({ init: true, startCommand: { argv: ['app'] } }, image)).toEqual({
      init: ['/sbin/init'],
      startCommand: ['app'],
    });
    expect(firstPrograms({}, image)).toEqual({ init: [], startCommand: [] });
  });
});
