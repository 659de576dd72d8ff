// A daemon for tests: serves /healthz on a unix socket and writes its ready file, as the real ones do.
// Arguments: SOCKET READY-FILE [MODE]; modes: `fail` prints and exits, `hang` never gets ready,
// `stubborn` ignores SIGTERM, `die` ends soon after it was ready, the first time.
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';

const [socket, ready, mode] = process.argv.slice(2);
if (mode === 'fail') {
  console.error('the reason why it cannot start');
  process.exit(3);
}
if (mode === 'stubborn') process.on('SIGTERM', () => {});
else process.on('SIGTERM', () => process.exit(0));
if (mode === 'hang') setInterval(() => {}, 1000);
else {
  rmSync(socket, { force: true });
  const server = http.createServer((request, response) => {
    response.end('{}');
    if (request.url === '/v1/shutdown') setTimeout(() => process.exit(0), 20);
  });
  server.listen(socket, () => {
    const stat = readFileSync('/proc/self/stat', 'utf8');
    const startTicks = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]);
    writeFileSync(`${ready}.new`, JSON.stringify({ pid: process.pid, startTicks, version: 'test' }));
    renameSync(`${ready}.new`, ready);
    if (mode === 'die' && !existsSync(`${ready}.died`)) {
      writeFileSync(`${ready}.died`, '');
      setTimeout(() => process.exit(7), 300);
    }
  });
}
