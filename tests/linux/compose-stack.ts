/** The story of a user of Compose: a database, a web service that waits for it, a test. In a machine and in a view of one. */
import { createReadStream } from 'node:fs';
import { expect } from 'vitest';
import { debianImage } from '../driver/debian-image.js';
import { type DockerMachine, stepTimeoutMs } from '../driver/docker-machine.js';
import { stackPackages } from './stack-packages.js';

/** Docker, Compose and what their tests call. */
export const dockerPackages = [
  'docker.io',
  'docker-compose',
  'iptables',
  'kmod',
  'ca-certificates',
  'busybox-static',
  'procps',
  'iproute2',
] as const;

/** Brings the image `stack:1` in, builds the project in `/root/shop`, runs it until its test has ended, and expects that it saw the rows. */
export async function runComposeStack(docker: DockerMachine): Promise<void> {
  // PostgreSQL and Python of Debian's packages, as another machine would have exported them.
  const tar = await debianImage('stack', stackPackages);
  await docker.sandbox.files.uploadStream(createReadStream(tar), '/root/stack.tar');
  await docker.sh(
    "docker import -c 'ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin' /root/stack.tar stack:1 && rm /root/stack.tar",
  );
  await docker.sh('mkdir -p /root/shop/web');
  for (const [name, content] of Object.entries(composeProject))
    await docker.sandbox.files.uploadStream(Buffer.from(content), `/root/shop/${name}`);
  const up = await docker.run(
    'cd /root/shop && docker-compose --ansi never build -q 2>&1 && docker-compose --ansi never up --abort-on-container-exit --exit-code-from test 2>&1',
    2 * stepTimeoutMs,
  );
  expect(up.stdout).toMatch(/test saw 903 of 42/);
  // The test ends with the number of rows that it was told.
  expect(up.exitCode).toBe(42);
}

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
