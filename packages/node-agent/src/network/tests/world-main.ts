/**
 * Test program: everything outside the node. TCP and UDP servers on its addresses that say which of them was
 * reached, and an upstream DNS server with made-up names. `network-lab.ts` runs it in a namespace of its own.
 */
import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
import { type Answer, decode, encode } from 'dns-packet';

/** Ports with a banner on every address of the world. */
const ports = [22, 80, 443, 853, 9000];

/** Given by `network-lab.ts`. */
const addresses = process.argv.slice(2);

/** Names that the world's DNS server knows; `lookups` in its log counts questions that reached it. */
const names: Record<string, { addresses?: string[]; ttl?: number; alias?: string; code?: number }> = {
  'a.allowed.test': { addresses: ['198.51.100.2'], ttl: 5 },
  'b.allowed.test': { alias: 'cdn.elsewhere.test' },
  'cdn.elsewhere.test': { addresses: ['198.51.100.3'], ttl: 300 },
  'evil.allowed.test': {
    addresses: ['127.0.0.1', '10.77.0.1', '169.254.169.254', '192.168.7.7', '198.51.100.4'],
  },
  'inside.allowed.test': { addresses: ['192.168.7.7'] },
  'x.other.test': { addresses: ['198.51.100.5'] },
  'exact.test': { addresses: ['198.51.100.6'] },
  'sub.exact.test': { addresses: ['198.51.100.7'] },
  'ports.test': { addresses: ['198.51.100.8'] },
  'alias-of-denied.test': { alias: 'x.other.test' },
  'gone.test': { code: 3 },
  'large.test': { addresses: Array.from({ length: 200 }, (_, n) => `198.51.100.${n + 1}`) },
};

function resolve(asked: string): { code: number; answers: Answer[] } {
  const answers: Answer[] = [];
  let name = asked.toLowerCase();
  for (let link = 0; link < 5; link += 1) {
    const known = names[name];
    if (!known) return { code: answers.length > 0 ? 0 : 3, answers };
    for (const data of known.addresses ?? [])
      answers.push({ type: 'A', name: link ? name : asked, ttl: known.ttl ?? 60, data });
    if (!known.alias) return { code: known.code ?? 0, answers };
    answers.push({ type: 'CNAME', name: link ? name : asked, ttl: 60, data: known.alias });
    name = known.alias;
  }
  return { code: 2, answers };
}

function answerDns(message: Buffer, limit: number): Buffer {
  const query = decode(message);
  const question = query.questions![0]!;
  const { code, answers } = resolve(question.name);
  log('dns', question.name, question.type);
  const wanted = answers.filter((answer) => answer.type === question.type || answer.type === 'CNAME');
  const full = encode({
    type: 'response',
    id: query.id!,
    flags: 0x180 | code,
    questions: [question],
    answers: wanted,
  });
  if (full.length <= limit) return full;
  const cut = encode({ type: 'response', id: query.id!, flags: 0x180 | code, questions: [question] });
  cut[2] = cut[2]! | 2;
  return cut;
}

function log(...words: (string | number | undefined)[]): void {
  process.stdout.write(`${words.join(' ')}\n`);
}

const udpDns = createSocket('udp4');
udpDns.on('message', (message, from) => udpDns.send(answerDns(message, 512), from.port, from.address));
const tcpDns = createServer((socket) => {
  socket.on('error', () => {});
  socket.on('data', (part: Buffer) => {
    const full = answerDns(part.subarray(2), 65_535);
    const length = Buffer.alloc(2);
    length.writeUInt16BE(full.length);
    socket.write(Buffer.concat([length, full]));
  });
});
// One address more than the guests know of: questions that went past the proxy would be seen as "stray".
const stray = createSocket('udp4');
stray.on('message', (_, from) => {
  log('stray', from.address);
  stray.send('stray', from.port, from.address);
});

// Keeps its connections open.
const echo = createServer((socket) => {
  socket.on('error', () => {});
  socket.pipe(socket);
});

let open = ports.length * (1 + addresses.length) + 4;
const ready = (): void => {
  open -= 1;
  if (open === 0) log('ready');
};
udpDns.bind(53, '198.51.100.53', ready);
tcpDns.listen(53, '198.51.100.53', ready);
echo.listen(9001, '0.0.0.0', ready);
stray.bind(53, '198.51.100.1', ready);
for (const port of ports) {
  const tcp = createServer((socket) => {
    log('tcp', socket.localAddress, port, socket.remoteAddress);
    socket.on('error', () => {});
    socket.end(`world ${socket.localAddress} ${port}\n`);
  });
  tcp.listen(port, '0.0.0.0', ready);
  // One socket an address: from 0.0.0.0 the kernel would answer with another source.
  for (const address of addresses) {
    const udp = createSocket('udp4');
    udp.on('message', (_, from) => {
      log('udp', address, port, from.address);
      udp.send(`world ${port}`, from.port, from.address);
    });
    udp.bind(port, address, ready);
  }
}
