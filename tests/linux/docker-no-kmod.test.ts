/** Docker in an image without kmod: the kernel gets its modules all the same. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { DockerMachine, fetchLine, stepTimeoutMs } from '../driver/docker-machine.js';
import { TestNode } from '../driver/test-node.js';

let node: TestNode;
let docker: DockerMachine;

beforeAll(async () => {
  node = await TestNode.start({ withPython: false });
  const packages = ['docker.io', 'iptables', 'ca-certificates', 'busybox-static', 'procps'];
  docker = await DockerMachine.start(node, 'docker-no-kmod', packages, { vcpus: 1 });
}, 2 * stepTimeoutMs);
afterAll(async () => {
  await docker?.close();
  await node?.close();
}, stepTimeoutMs);

it('overlay2, a published port on the bridge, a build; and nothing in the image loads modules', {
  timeout: stepTimeoutMs,
}, async () => {
  expect(await docker.sh('command -v modprobe insmod lsmod kmod || echo none')).toBe('none');
  expect(await docker.sh("docker info -f '{{.Driver}}'")).toBe('overlay2');
  await docker.sh('docker run -d --name web -p 8080:80 bb:1 httpd -f -p 80 -h /www');
  await docker.until('it serves', `${fetchLine('127.0.0.1', 8080)} | grep -qx page`);
  await docker.sh('docker rm -f web');
  await docker.sh(
    'mkdir -p /root/b && printf \'FROM bb:1\\nRUN echo made > /m\\nCMD ["cat", "/m"]\\n\' > /root/b/Dockerfile && docker build -q -t m /root/b',
  );
  expect(await docker.sh('docker run --rm m')).toBe('made');
  expect(await docker.sh('iptables -t nat -S | grep -c MASQUERADE')).not.toBe('0');
});
