/** Two images of weight, of Debian's packages alone: a C++ tool chain that builds a project, and a database behind a web server. */
import { createReadStream } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { debianImage } from '../driver/debian-image.js';
import { fetchLine } from '../driver/docker-machine.js';
import { TestNode, type TestSpec } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';
import { stackPackages } from './stack-packages.js';

let node: TestNode;
/** A compiler that is emulated on a busy host needs minutes for what takes seconds elsewhere. */
const slow = { timeout: 900_000 } as const;
const step = { timeoutMs: 600_000 } as const;

beforeAll(async () => {
  node = await TestNode.start({ withPython: false });
});
afterAll(() => node?.close());

/** A sandbox of these packages. */
async function sandboxOf(
  name: string,
  packages: readonly string[],
  spec: TestSpec = {},
): Promise<TestSandbox> {
  await node.importArchive(createReadStream(await debianImage(name, packages)), `debian/${name}:1`);
  return node.create({
    image: `debian/${name}:1`,
    memoryMiB: 1024,
    vcpus: 2,
    diskBytes: 4 * 2 ** 30,
    ...spec,
  });
}

/** A library, a program and a test of it. */
const project: Record<string, string> = {
  'CMakeLists.txt': `cmake_minimum_required(VERSION 3.25)
project(words LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 17)
add_library(words SHARED words.cpp)
add_executable(count main.cpp)
target_link_libraries(count PRIVATE words)
find_package(Threads REQUIRED)
target_link_libraries(count PRIVATE Threads::Threads)
enable_testing()
add_test(NAME counts COMMAND count a b a)
set_tests_properties(counts PROPERTIES PASS_REGULAR_EXPRESSION "a 2.b 1")
install(TARGETS words count)
`,
  'words.h': '#include <map>\n#include <string>\nstd::map<std::string, int> count(int, char **);\n',
  'words.cpp': `#include "words.h"
#include <stdexcept>
std::map<std::string, int> count(int argc, char **argv) {
  if (argc < 2) throw std::invalid_argument("no words");
  std::map<std::string, int> found;
  for (int i = 1; i < argc; i++) found[argv[i]]++;
  return found;
}
`,
  'main.cpp': `#include "words.h"
#include <iostream>
#include <thread>
int main(int argc, char **argv) {
  int code = 0;
  std::thread([&] {
    try { for (auto &[word, times] : count(argc, argv)) std::cout << word << ' ' << times << std::endl; }
    catch (const std::exception &error) { std::cerr << error.what() << std::endl; code = 3; }
  }).join();
  return code;
}
`,
};

describe('a C++ tool chain', () => {
  it(
    'configures, builds, tests and installs a CMake project; make and a debugger’s symbols too',
    slow,
    async () => {
      const sandbox = await sandboxOf('toolchain', ['build-essential', 'cmake']);
      for (const [name, content] of Object.entries(project))
        await sandbox.files.uploadStream(Buffer.from(content), `/root/words/${name}`);
      await sandbox.out('cmake -S /root/words -B /root/build -DCMAKE_BUILD_TYPE=Debug', step);
      await sandbox.out('cmake --build /root/build -j2', step);
      expect(await sandbox.out('ctest --test-dir /root/build', step)).toContain('100% tests passed');
      await sandbox.out('cmake --install /root/build && ldconfig', step);
      expect(await sandbox.out('count b a b', { ...step, cwd: '/tmp' })).toBe('a 1\nb 2');
      expect(await sandbox.sh('count')).toMatchObject({ exitCode: 3, stderr: 'no words\n' });
      // What is up to date is not built again: times of files are to the nanosecond.
      expect(await sandbox.out('cmake --build /root/build', step)).not.toContain('Building');
      expect(await sandbox.out('readelf -S /usr/local/bin/count | grep -c debug_info')).toBe('1');
      await sandbox.delete();
    },
  );
});

/** Answers GET /sum?upto=N by asking PostgreSQL. */
const webProgram = `
import http.server, json, psycopg2, urllib.parse
db = psycopg2.connect('dbname=shop')
db.autocommit = True
class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        upto = int(urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)['upto'][0])
        with db.cursor() as cursor:
            cursor.execute('select sum(price), count(*) from items where id <= %s', (upto,))
            total, count = cursor.fetchone()
        body = json.dumps({'total': int(total), 'count': count, 'for': self.headers['x-real-ip']}).encode()
        self.send_response(200); self.send_header('content-length', str(len(body))); self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Page).serve_forever()
`;
const nginxSite = `server {
  listen 80;
  location / { root /srv/www; }
  location /sum { proxy_pass http://127.0.0.1:8000; proxy_set_header x-real-ip $remote_addr; proxy_read_timeout 100s; }
}
`;

describe('PostgreSQL, Python and nginx', () => {
  let sandbox: TestSandbox;
  beforeAll(async () => {
    sandbox = await sandboxOf('stack', stackPackages);
  }, slow.timeout);
  afterAll(() => sandbox?.delete());

  it('the database answers over HTTP, and keeps what it has over a crash of its own', slow, async () => {
    await sandbox.out('pg_ctlcluster 15 main start -- -t 300', step);
    const sql = (text: string) =>
      sandbox.out(`psql -At -d shop -c "${text}"`, { ...step, user: 'postgres', cwd: '/' });
    await sandbox.out('createdb shop', { ...step, user: 'postgres', cwd: '/' });
    await sql(
      'create table items as select id, id * 2 as price from generate_series(1, 20000) as id; create unique index on items (id)',
    );
    await sandbox.files.uploadStream(Buffer.from(webProgram), '/srv/web.py');
    await sandbox.files.uploadStream(Buffer.from(nginxSite), '/etc/nginx/sites-enabled/default');
    await sandbox.files.uploadStream(Buffer.from('a page\n'), '/srv/www/index.html');
    const web = await sandbox.exec(['python3', '/srv/web.py'], { user: 'postgres', session: true });
    await sandbox.out('nginx', step);
    const get = (path: string) => sandbox.out(fetchLine('localhost', 80, path), step);
    expect(await get('/')).toBe('a page');
    await sandbox.until(
      'the application answers',
      async () =>
        (await sandbox.sh(`${fetchLine('localhost', 80, '/sum?upto=1')} | grep -q total`, step)).exitCode ===
        0,
      120_000,
    );
    expect(JSON.parse(await get('/sum?upto=100'))).toEqual({ total: 10100, count: 100, for: '127.0.0.1' });
    await web.signal('SIGTERM');
    await web.wait();
    await sandbox.out('kill -KILL $(head -1 /var/lib/postgresql/15/main/postmaster.pid)');
    await sandbox.until(
      'it has ended',
      async () => (await sandbox.sh('pg_lsclusters -h | grep -q down', step)).exitCode === 0,
      120_000,
      1_000,
    );
    await sandbox.out('pg_ctlcluster 15 main start -- -t 300', step);
    expect(await sql('select count(*) from items')).toBe('20000');
  });

  it('ping has its capability, and sudo its rights', slow, async () => {
    expect(await sandbox.out('ping -n -c 1 -W 10 127.0.0.1', { user: 'nobody' })).toContain('1 received');
    await sandbox.out("useradd -m worker && echo 'worker ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/worker");
    expect(await sandbox.out('id -un; sudo -n id -un; sudo -n -u postgres id -un', { user: 'worker' })).toBe(
      'worker\nroot\npostgres',
    );
    expect((await sandbox.sh('sudo -n true', { user: 'nobody' })).exitCode).not.toBe(0);
  });
});
