/** Stock Docker and Compose from Debian's packages in a sandbox: everything a user of theirs does on a Debian machine. */
import { createReadStream } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { debianImage } from '../driver/debian-image.js';
import { DockerMachine, fetchLine, stepTimeoutMs } from '../driver/docker-machine.js';
import { TestNode } from '../driver/test-node.js';
import { stackPackages } from './stack-packages.js';

let node: TestNode;
let docker: DockerMachine;

const packages = [
  'docker.io',
  'docker-compose',
  'iptables',
  'kmod',
  'ca-certificates',
  'busybox-static',
  'procps',
  'iproute2',
];

beforeAll(async () => {
  node = await TestNode.start({ withPython: false });
  docker = await DockerMachine.start(node, 'docker', packages);
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
    // PostgreSQL and Python of Debian's packages, as another machine would have exported them.
    const tar = await debianImage('stack', stackPackages);
    await docker.sandbox.files.uploadStream(createReadStream(tar), '/root/stack.tar');
    await docker.sh(
      "docker import -c 'ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin' /root/stack.tar stack:1 && rm /root/stack.tar",
    );
    await docker.sh('mkdir -p /root/shop/web');
    for (const [name, content] of Object.entries(composeProject))
      await docker.sandbox.files.uploadStream(Buffer.from(content), `/root/shop/${name}`);
    const up = await docker.sandbox.sh(
      'cd /root/shop && docker-compose --ansi never build -q 2>&1 && docker-compose --ansi never up --abort-on-container-exit --exit-code-from test 2>&1',
      { timeoutMs: 2 * stepTimeoutMs },
    );
    expect(up.stdout).toMatch(/test saw 903 of 42/);
    // The test ends with the number of rows that it was told.
    expect(up.exitCode).toBe(42);
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

const composeProject = {
  'docker-compose.yml': `
version: "2.4"
services:
  db:
    image: stack:1
    user: postgres
    command:
      - sh
      - -c
      - >-
        echo 'host all all all trust' > /tmp/hba &&
        exec /usr/lib/postgresql/15/bin/postgres -D /var/lib/postgresql/15/main
        -c config_file=/etc/postgresql/15/main/postgresql.conf -c hba_file=/tmp/hba -c ssl=off
        -c listen_addresses=* -c unix_socket_directories=/tmp -c fsync=off
    volumes: ["rows:/var/lib/postgresql"]
    healthcheck:
      test: ["CMD", "/usr/lib/postgresql/15/bin/pg_isready", "-h", "127.0.0.1", "-t", "30"]
      interval: 5s
      timeout: 60s
      retries: 60
  web:
    build: web
    ports: ["8081:80"]
    depends_on: {db: {condition: service_healthy}}
    healthcheck:
      test: ["CMD", "busybox", "timeout", "40", "busybox", "wget", "-q", "-O", "-", "http://127.0.0.1/"]
      interval: 5s
      timeout: 60s
      retries: 60
  test:
    build: web
    command: [python3, /check.py]
    depends_on: {web: {condition: service_healthy}}
volumes: {rows: {}}
`,
  'web/Dockerfile': 'FROM stack:1\nCOPY app.py check.py /\nCMD ["python3", "-u", "/app.py"]\n',
  'web/app.py': `
import http.server, psycopg2
def query(text, fetch=True):
    with psycopg2.connect(host='db', user='postgres', dbname='postgres', connect_timeout=60) as db, db.cursor() as cursor:
        cursor.execute(text)
        return cursor.fetchone() if fetch else None
query('create table numbers as select generate_series(1, 42) as n', fetch=False)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ('%d of %d' % query('select sum(n), count(*) from numbers')).encode()
        self.send_response(200); self.send_header('content-length', str(len(body))); self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(('', 80), Page).serve_forever()
`,
  'web/check.py': `
import sys, urllib.request
text = urllib.request.urlopen('http://web/', timeout=100).read().decode()
print('test saw', text, flush=True)
sys.exit(int(text.split()[-1]))
`,
};
