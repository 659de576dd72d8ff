/** A machine with stock Docker in it, started as a user would by hand. Used by the tests of Docker in tests/linux. */
import { createReadStream } from 'node:fs';
import type { RunResult, View } from '@sandlot/sdk';
import { debianImage } from './debian-image.js';
import type { TestNode, TestSpec } from './test-node.js';
import type { TestSandbox } from './test-sandbox.js';

/** `docker import` of busybox and its names: an image of content that Debian packages have brought. */
const importBusybox = `set -e
mkdir -p /tmp/bb/bin /tmp/bb/www /tmp/bb/tmp /tmp/bb/etc
cp /bin/busybox /tmp/bb/bin/
for name in sh ls cat httpd wget sleep id ip hostname touch test echo true env grep rm mkdir ps; do ln -sf busybox /tmp/bb/bin/$name; done
echo page > /tmp/bb/www/index.html
tar -C /tmp/bb -c . | docker import -c 'ENV PATH=/bin' - bb:1`;

/**
 * As Debian's units start it: containerd first, dockerd with it, again when it gives up (it allows containerd 15
 * seconds, which an emulated machine on a busy host may not keep).
 */
const startDaemons = `containerd & until test -S /run/containerd/containerd.sock; do sleep 1; done
for try in 1 2 3 4 5; do dockerd --containerd=/run/containerd/containerd.sock && exit; done`;

/** Longest step of a story in a machine that is emulated on a busy host. */
export const stepTimeoutMs = 600_000;

/**
 * A line of shell that prints the last line of a page. By bash alone: images need not have curl, and the wget of Debian's
 * static busybox crashes when it is given a timeout (`-T`), on a plain host as well.
 */
export function fetchLine(host: string, port = 80, path = '/'): string {
  const ask = `exec 3<>/dev/tcp/${host}/${port} && printf "GET ${path} HTTP/1.0\\r\\nHost: test\\r\\n\\r\\n" >&3 && cat <&3`;
  return `timeout 60 bash -c '${ask}' | tail -n 1`;
}

/** See the file's head. */
export class DockerMachine {
  private constructor(
    readonly sandbox: TestSandbox,
    private readonly view: View | undefined,
  ) {}

  /** A sandbox of an image of these packages, dockerd running, image `bb:1` imported; all of it in `view`, if there is one. */
  static async start(
    node: TestNode,
    name: string,
    packages: readonly string[],
    spec: TestSpec = {},
    view?: View,
  ): Promise<DockerMachine> {
    await node.importArchive(createReadStream(await debianImage(name, packages)), `debian/${name}:1`);
    const sandbox = await node.create({
      image: `debian/${name}:1`,
      vcpus: 2,
      memoryMiB: 2048,
      diskBytes: 10 * 2 ** 30,
      ...spec,
    });
    const machine = new DockerMachine(sandbox, view);
    await machine.sh(`setsid sh -c '${startDaemons}' >/var/log/dockerd.log 2>&1 </dev/null &`);
    // A Docker client is a second's work for an emulated machine: look for the socket first.
    await machine.until('dockerd is ready', 'test -S /run/docker.sock && docker version >/dev/null 2>&1');
    await machine.sh(importBusybox);
    return machine;
  }

  /** A line of shell, however it ends. */
  run(line: string, timeoutMs = stepTimeoutMs): Promise<RunResult> {
    return this.sandbox.sh(line, { timeoutMs, ...(this.view ? { view: this.view } : {}) });
  }

  /** Output of a line of shell that must succeed, trimmed; dockerd's newest complaints if it does not. */
  async sh(line: string): Promise<string> {
    const { exitCode, stdout, stderr } = await this.run(line);
    if (exitCode === 0) return stdout.trim();
    const complaints = await this.sandbox.sh(
      "grep -E 'level=(error|warning|fatal)' /var/log/dockerd.log | tail -12",
    );
    throw new Error(`"${line}" ended with ${exitCode}: ${stdout}${stderr}\ndockerd: ${complaints.stdout}`);
  }

  /** Waits until a line of shell ends with 0. */
  async until(what: string, line: string): Promise<void> {
    let said = '';
    const ends = async () => {
      const { exitCode, stdout, stderr } = await this.run(line, 120_000);
      said = `${exitCode}: ${stdout}${stderr}`;
      return exitCode === 0;
    };
    await this.sandbox.until(what, ends, 400_000, 2_000).catch((cause: Error) => {
      throw new Error(`${cause.message}; the last try of "${line}" ended with ${said}`, { cause });
    });
  }

  /** Ends the machine, whatever runs in it. */
  async close(): Promise<void> {
    await this.sandbox.delete();
  }
}
