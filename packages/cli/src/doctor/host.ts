/** The real host as `doctor` looks at it. */
import { spawnSync } from 'node:child_process';
import { accessSync, closeSync, constants, existsSync, openSync, readFileSync, statfsSync } from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import type { DoctorHost } from './check.js';

/** Everything but what the server says. */
export function realHost(
  options: Pick<DoctorHost, 'isRoot' | 'dataFolder' | 'guestAssets' | 'listen' | 'serverStatus'>,
): DoctorHost {
  return {
    ...options,
    runProgram(file, args) {
      const done = spawnSync(file, args, {
        timeout: 10_000,
        encoding: 'utf8',
        env: { ...process.env, PATH: `${process.env['PATH'] ?? ''}:/usr/sbin:/sbin` },
      });
      return done.error ? undefined : `${done.stdout}${done.stderr}`;
    },
    readText(file) {
      try {
        return readFileSync(file, 'utf8');
      } catch {
        return undefined;
      }
    },
    exists: existsSync,
    canOpen(file) {
      try {
        accessSync(file, constants.R_OK | constants.W_OK);
        closeSync(openSync(file, 'r+'));
        return true;
      } catch {
        return false;
      }
    },
    freeBytes(folder) {
      for (let at = folder; ; at = path.dirname(at)) {
        try {
          const { bavail, bsize } = statfsSync(at);
          return bavail * bsize;
        } catch {
          if (at === path.dirname(at)) return undefined;
        }
      }
    },
    memoryBytes: os.totalmem(),
    cores: os.availableParallelism(),
    nowMs: Date.now(),
    canListen(host, port) {
      return new Promise((resolve) => {
        const server = net.createServer();
        server.once('error', () => resolve(false));
        server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(true)));
      });
    },
  };
}
