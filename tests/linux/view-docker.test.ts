/** Docker and Compose of Debian's packages in a sealed view: an agent with root runs them, and what is hidden stays so. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { DockerMachine, fetchLine, stepTimeoutMs } from '../driver/docker-machine.js';
import { TestNode } from '../driver/test-node.js';
import { dockerPackages, runComposeStack } from './compose-stack.js';

const hidden = '/srv/answers';
const token = 'what nobody in the view may read';

let node: TestNode;
let docker: DockerMachine;

beforeAll(async () => {
  node = await TestNode.start({ withPython: false });
  docker = await DockerMachine.start(
    node,
    'docker',
    dockerPackages,
    {},
    {
      strength: 'sealed',
      // Of the image's, so that it is there when the first command of the view is.
      hide: ['/srv'],
    },
  );
  await docker.sandbox.out(`mkdir -p ${hidden} && echo '${token}' > ${hidden}/token`);
}, 2 * stepTimeoutMs);
afterAll(async () => {
  await docker?.close();
  await node?.close();
}, stepTimeoutMs);

const slow = { timeout: stepTimeoutMs } as const;

it('overlay2 on cgroup v2; containers run, with users, limits and rights', slow, async () => {
  expect(await docker.sh("docker info -f '{{.Driver}} {{.CgroupVersion}}'")).toBe('overlay2 2');
  expect(
    await docker.sh('docker run --rm bb:1 sh -c "echo inside; id -u; cat /proc/1/comm; hostname"'),
  ).toMatch(/^inside\n0\nsh\n[0-9a-f]{12}$/);
  expect(
    await docker.sh(
      'docker run --rm --user 1000:1001 --memory 64m --pids-limit 50 bb:1 sh -c "id -u; cd /sys/fs/cgroup; cat memory.max pids.max"',
    ),
  ).toBe('1000\n67108864\n50');
  expect(
    await docker.sh('docker run --rm --privileged bb:1 busybox mount -t tmpfs x /tmp && echo mounted'),
  ).toBe('mounted');
});

it('a published port is reached in the view, and from the machine at the view’s address', slow, async () => {
  await docker.sh('docker run -d --name web -p 8080:80 bb:1 httpd -f -p 80 -h /www');
  await docker.until('it serves', `${fetchLine('127.0.0.1', 8080)} | grep -qx page`);
  const address = await docker.sh(
    "ip -4 -o addr show | awk '$4 ~ /^10\\.0\\.3\\./ {print $4}' | cut -d/ -f1",
  );
  expect((await docker.sandbox.out(fetchLine(address, 8080))).trim()).toBe('page');
  await docker.sh('docker rm -f web');
});

it('a build, volumes, and what it wrote is on the machine’s disk', slow, async () => {
  await docker.sh(`mkdir -p /root/built && cd /root/built && printf 'FROM bb:1\\nRUN echo made > /made\\nUSER 1000\\n' > Dockerfile
    docker build -q -t built . && docker run --rm -v /root/out:/out built cat /made`);
  await docker.sh('docker run --rm -v /root/out:/out bb:1 sh -c "echo kept > /out/file"');
  expect((await docker.sandbox.out('cat /root/out/file; stat -c %u /root/out/file')).trim()).toBe('kept\n0');
});

it('no container shows what the view hides', slow, async () => {
  const tries = [
    'docker run --rm -v /:/host bb:1 cat /host/srv/answers/token',
    'docker run --rm --privileged --pid host -v /:/host bb:1 busybox chroot /host cat /srv/answers/token',
    'docker run --rm --privileged --pid host bb:1 busybox nsenter -t 1 -m cat /srv/answers/token',
    'docker run --rm --privileged --pid host bb:1 cat /proc/1/root/srv/answers/token',
    'docker run --rm --privileged -v /:/host:shared bb:1 busybox umount /host/srv && cat /srv/answers/token',
  ];
  for (const line of tries) {
    const { exitCode, stdout, stderr } = await docker.run(line);
    expect(`${stdout}${stderr}`, line).not.toContain(token);
    expect(exitCode, line).not.toBe(0);
  }
  // The same without a view, so that the tries are known to be able to.
  expect(await docker.sandbox.out('cat /srv/answers/token')).toContain(token);
});

it('Compose: a database, a web service that waits until it is well, a test', {
  timeout: 3 * stepTimeoutMs,
}, async () => {
  await runComposeStack(docker);
  await docker.sh('cd /root/shop && docker-compose --ansi never down -v 2>&1');
});
