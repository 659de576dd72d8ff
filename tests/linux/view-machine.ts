/** A machine with something to hide, and what there is outside of its views to be reached. Used by the tests of views. */
import { randomBytes } from 'node:crypto';
import { createReadStream, readFileSync } from 'node:fs';
import type { RunOptions, RunResult, View } from '@sandlot/sdk';
import { inCheckout } from '../driver/checkout.js';
import { debianImage } from '../driver/debian-image.js';
import { OutsideWorld } from '../driver/outside-world.js';
import { staticProgram } from '../driver/test-images.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

/** What an agent in a machine may need; nothing of it is prepared for views. */
const packages = [
  ...['python3', 'iproute2', 'iptables', 'nftables', 'iputils-ping', 'sudo', 'tmux', 'e2fsprogs', 'strace'],
  ...['kmod', 'procps', 'libcap2-bin', 'curl', 'fuse3', 'fuse-overlayfs', 'acl', 'keyutils'],
];

/** The hidden folder. */
export const hidden = '/srv/shop/data';
/** The view of most tests. */
export const sealed = { strength: 'sealed', hide: [hidden] } as const satisfies View;
/** The same, undone by root: where tries that root may make must work. */
export const mask = { strength: 'mask', hide: [hidden] } as const satisfies View;

/** See the file's head. */
export class ViewMachine {
  /** What must never be seen in a view. */
  readonly token = `token-${randomBytes(12).toString('hex')}`;

  private constructor(
    readonly node: TestNode,
    readonly sandbox: TestSandbox,
    private readonly world: OutsideWorld,
  ) {}

  /** Boots it. */
  static async open(): Promise<ViewMachine> {
    let world: OutsideWorld | undefined;
    const node = await TestNode.start({
      withPython: false,
      prepare: async (namespace) => {
        world = await OutsideWorld.open(namespace);
      },
    });
    await node.importArchive(createReadStream(await debianImage('views', packages)), 'debian/views:1');
    const spec = { image: 'debian/views:1', memoryMiB: 1024, diskBytes: 3 * 2 ** 30 };
    const machine = new ViewMachine(node, await node.create(spec), world as OutsideWorld);
    await machine.#fill();
    return machine;
  }

  async #fill(): Promise<void> {
    const { sandbox, token } = this;
    const program = staticProgram(readFileSync(inCheckout('tests/linux/escapes/escape.c'), 'utf8'));
    await sandbox.files.uploadStream([program], '/usr/local/bin/escape');
    await sandbox.out(
      `chmod 755 /usr/local/bin/escape; mkdir -p ${hidden} /srv/shop/public /opt/free /opt/empty
       echo ${token} > ${hidden}/secret.txt; echo public > /srv/shop/public/page; echo ${token} > /etc/answer
       mknod /opt/left-node b $(awk '$4 == "vda" {print $1}' /proc/partitions) 0`,
    );
  }

  /** The program of tries, its output. `view` of strength none is outside. */
  async escape(view: View, name: string, argument = '', options: RunOptions = {}): Promise<string> {
    const major = await this.#diskMajor();
    const env = { DISK_MAJOR: major, ...options.env };
    const result = await this.sandbox.run(['/usr/local/bin/escape', name, argument], {
      view,
      timeoutMs: 90_000,
      ...options,
      env,
    });
    return result.stdout + result.stderr;
  }

  /** Starts something outside that goes on; answers when it has printed its first line. */
  async startOutside(line: string): Promise<{ pid: number }> {
    const process = await this.sandbox.exec(['/bin/sh', '-c', `exec ${line}`], {
      session: true,
      view: { strength: 'none' },
    });
    return { pid: process.pid };
  }

  /** A line of shell outside. */
  outside(line: string, options: RunOptions = {}): Promise<RunResult> {
    return this.sandbox.sh(line, { view: { strength: 'none' }, ...options });
  }

  #major: string | undefined;
  async #diskMajor(): Promise<string> {
    this.#major ??= await this.sandbox.out(`awk '$4 == "vda" {print $1}' /proc/partitions`);
    return this.#major;
  }

  /** Ends all. */
  async close(): Promise<void> {
    this.world.close();
    await this.node.close();
  }
}
