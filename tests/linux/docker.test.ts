/** Stock Docker and Compose from Debian's packages in a sandbox: everything a user of theirs does on a Debian machine. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DockerMachine, fetchLine, stepTimeoutMs } from '../driver/docker-machine.js';
import { TestNode } from '../driver/test-node.js';
import { dockerPackages, runComposeStack } from './compose-stack.js';

let node: TestNode;
let docker: DockerMachine;

beforeAll(async () => {
  node = await TestNode.start({ withPython: false });
  docker = await DockerMachine.start(node, 'docker', dockerPackages);
}, 2 * stepTimeoutMs);
afterAll(async () => {
  await docker?.close();
  await node?.close();
}, stepTimeoutMs);

const slow = { timeout: stepTimeoutMs } as const;

describe('containers', () => {
  it('overlay2 on cgroup v2, without a complaint', slow, async () => {
    expect(await docker.sh("docker info -f '{{.Driver}} {{.CgroupVersion}} {{.CgroupDriver}}'")).toBe(
      'overlay2 2 cgroupfs',
    );
    expect(await docker.sh('docker info 2>&1 | grep WARN || true')).not.toMatch(
      /iptables|bridge-nf|cpu|memory limit/,
    );
    expect(
      await docker.sh('docker run --rm bb:1 sh -c "echo inside; id -u; cat /proc/1/comm; hostname"'),
    ).toMatch(/^inside\n0\nsh\n[0-9a-f]{12}$/);
    expect(await docker.sh('docker run --rm bb:1 sh -c "exit 41"; echo $?')).toBe('41');
  });

  it(
    'a published port, by the loopback, the machine’s address and the bridge; logs, exec, stop',
    slow,
    async () => {
      await docker.sh('docker run -d --name web -p 8080:80 bb:1 httpd -f -v -p 80 -h /www');
      await docker.until('it serves', `${fetchLine('127.0.0.1', 8080)} | grep -qx page`);
      const own = await docker.sh("ip -4 -o addr show eth0 | awk '{print $4}' | cut -d/ -f1");
      const inner = await docker.sh("docker inspect -f '{{.NetworkSettings.IPAddress}}' web");
      expect(await docker.sh(fetchLine(own, 8080))).toBe('page');
      expect(await docker.sh(fetchLine(inner))).toBe('page');
      expect(await docker.sh('docker exec -e A=b -w /www web sh -c "echo $A; ls; exit 0"')).toContain(
        'index.html',
      );
      expect(await docker.sh('docker logs web 2>&1')).toContain('response:200');
      expect(
        await docker.sh('docker stop -t 5 web >/dev/null; docker wait web; docker rm web >/dev/null'),
      ).toMatch(/^\d+$/);
      expect(await docker.sh(`${fetchLine('127.0.0.1', 8080)} 2>&1`)).not.toContain('page');
    },
  );

  it('containers find each other by name on a network of their own', slow, async () => {
    await docker.sh(
      'docker network create inside && docker run -d --name far --network inside bb:1 httpd -f -p 80 -h /www',
    );
    await docker.until(
      'it serves',
      'docker run --rm --network inside bb:1 busybox timeout 60 wget -q -O - http://far/ | grep -qx page',
    );
    await docker.sh('docker rm -f far && docker network rm inside');
    expect(await docker.sh('docker run --rm --network none bb:1 ip -o addr | grep -c eth0 || true')).toBe(
      '0',
    );
    expect(await docker.sh('docker run --rm --network host bb:1 ip -o addr | grep -c docker0')).not.toBe('0');
  });

  it(
    'volumes keep what containers leave; a folder of the machine is seen, read-only if so said',
    slow,
    async () => {
      await docker.sh(
        'docker volume create kept && docker run --rm -v kept:/data bb:1 sh -c "echo first > /data/a"',
      );
      expect(await docker.sh('docker run --rm -v kept:/data bb:1 cat /data/a')).toBe('first');
      await docker.sh('mkdir -p /srv/share && echo mine > /srv/share/f');
      expect(
        await docker.sh(
          'docker run --rm -v /srv/share:/s:ro bb:1 sh -c "cat /s/f; touch /s/g 2>/dev/null || echo refused"',
        ),
      ).toBe('mine\nrefused');
      await docker.sh('docker run --rm -v /srv/share:/s bb:1 touch /s/made && test -f /srv/share/made');
    },
  );

  it('limits, users and rights', slow, async () => {
    expect(
      await docker.sh(
        'docker run --rm --memory 64m --cpus 0.5 --pids-limit 50 bb:1 sh -c "cd /sys/fs/cgroup; cat memory.max cpu.max pids.max"',
      ),
    ).toBe('67108864\n50000 100000\n50');
    expect(
      await docker.sh(
        'docker run --rm --user 1000:1001 --cap-drop ALL --read-only bb:1 sh -c "id -u; id -g; touch /x 2>/dev/null || echo ro"',
      ),
    ).toBe('1000\n1001\nro');
    expect(
      await docker.sh('docker run --rm --privileged bb:1 busybox mount -t tmpfs x /tmp && echo mounted'),
    ).toBe('mounted');
    const killed = await docker.sh(
      'docker run --name fat --memory 32m bb:1 busybox tail /dev/zero; docker inspect -f "{{.State.OOMKilled}}" fat; docker rm fat >/dev/null',
    );
    expect(killed).toContain('true');
  });

  it('health checks tell when it is well and when no longer', slow, async () => {
    const check =
      '--health-cmd "test -f /tmp/well" --health-interval 2s --health-timeout 20s --health-retries 1';
    await docker.sh(`docker run -d --name patient ${check} bb:1 sh -c "touch /tmp/well; sleep 10000"`);
    const is = (state: string) => `docker inspect -f '{{.State.Health.Status}}' patient | grep -qx ${state}`;
    await docker.until('it is healthy', is('healthy'));
    await docker.sh('docker exec patient rm /tmp/well');
    await docker.until('it is unhealthy', is('unhealthy'));
    await docker.sh('docker rm -f patient');
  });
});

describe('images', () => {
  it('docker build: COPY, RUN, ENV, USER, two stages; the second time from its cache', slow, async () => {
    await docker.sh(`mkdir -p /root/built && cd /root/built && echo content > file && cat > Dockerfile <<'END'
FROM bb:1 AS first
COPY file /in/
RUN cat /in/file > /made && echo more >> /made
FROM bb:1
COPY --from=first /made /made
ENV SAID=yes
RUN test "$SAID" = yes && test "$(id -u)" = 0
USER 1000
CMD ["sh", "-c", "cat /made; id -u; echo $SAID"]
END`);
    await docker.sh('docker build -q -t built /root/built');
    expect(await docker.sh('docker run --rm built')).toBe('content\nmore\n1000\nyes');
    expect(await docker.sh('docker build -t built /root/built')).toContain('Using cache');
  });

  it('docker save, load, commit and tag', slow, async () => {
    await docker.sh('docker save -o /tmp/built.tar built && docker rmi built >/dev/null');
    expect(await docker.sh('docker load -i /tmp/built.tar && docker run --rm built')).toContain('1000');
    await docker.sh(
      'docker run --name changed bb:1 touch /new && docker commit changed changed:2 && docker rm changed',
    );
    expect(await docker.sh('docker run --rm changed:2 ls /new')).toBe('/new');
  });
});

describe('Compose', () => {
  it('a database, a web service that waits until it is well, a test whose exit code passes', {
    timeout: 3 * stepTimeoutMs,
  }, async () => {
    await runComposeStack(docker);
    await docker.sh('cd /root/shop && docker-compose --ansi never down 2>&1');
    expect(await docker.sh('docker run --rm -v shop_rows:/v bb:1 cat /v/15/main/PG_VERSION')).toBe('15');
    expect(await docker.sh('docker ps -aq; docker network ls -q -f name=shop')).toBe('');
  });
});

it('modules came as they were asked for', slow, async () => {
  const loaded = await docker.sh("lsmod | awk 'NR > 1 {print $1}'");
  for (const name of ['overlay', 'bridge', 'br_netfilter', 'veth', 'nf_nat', 'xt_MASQUERADE', 'xt_conntrack'])
    expect(loaded.split('\n')).toContain(name);
});
