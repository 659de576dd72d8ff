/**
 * A registry beside a test server, in its network namespace: the test registry of the images package in a
 * process of its own, over one folder with an image for each tag. Used by the tests of images.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { LayoutFixture } from '@sandlot/images/testing/layout-fixture';
import { inCheckout } from './checkout.js';
import type { HostNamespace } from './host-namespace.js';

/** Name of the repository that holds all images. */
const repository = 'test/images';

/** Node's program: serves the folder until its standard input ends. Arguments: module, folder. */
const program = `
const { TestRegistry } = await import(process.argv[1]);
const registry = await TestRegistry.start({ repositories: { '${repository}': process.argv[2] } });
console.log(registry.host);
process.stdin.resume().on('end', () => process.exit(0));
`;

/** See the file's head. */
export class RegistryProcess {
  private constructor(
    readonly layout: LayoutFixture,
    private readonly child: ChildProcess,
    private readonly host: string,
  ) {}

  /** Starts one with no image yet. */
  static async start(namespace: HostNamespace): Promise<RegistryProcess> {
    const layout = await LayoutFixture.create(mkdtempSync(join(tmpdir(), 'slt-registry-')));
    const module = inCheckout('packages/images/dist/testing/test-registry.js');
    const argv = [process.execPath, '--input-type=module', '-e', program, module, layout.folder];
    const child = spawn(...namespace.command(argv), { stdio: ['pipe', 'pipe', 'inherit'] });
    const host = await new Promise<string>((resolve, reject) => {
      createInterface({ input: child.stdout as NonNullable<typeof child.stdout> }).once('line', resolve);
      child.once('exit', (code) => reject(new Error(`the registry ended with ${code}`)));
    });
    return new RegistryProcess(layout, child, host);
  }

  /** Reference of the image with this tag. */
  reference(tag: string): string {
    return `${this.host}/${repository}:${tag}`;
  }

  /** Ends it. */
  async close(): Promise<void> {
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.stdin?.end();
    await ended;
    rmSync(this.layout.folder, { recursive: true, force: true });
  }
}
