/**
 * What lies outside of a test node: a network namespace behind the node's uplink with a web server, and the
 * DNS servers that this machine's resolv.conf names, played in the node's namespace. So a guest's way out is
 * tested without any real network. Used by the tests of machines.
 */
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { createInterface } from 'node:readline';
import type { HostNamespace } from './host-namespace.js';

/** The web server; the name is known to the DNS server alone. */
export const outside = { address: '198.51.100.10', name: 'www.outside.test' } as const;
/** The node's address on its uplink. */
export const nodeUplink = '203.0.113.1';
const gateway = '203.0.113.254';

/** Answers each request with the address that it came from. */
const webProgram = `
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ('outside sees ' + self.client_address[0]).encode()
        self.send_response(200); self.send_header('content-length', str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer((sys.argv[1], 80), Handler)
print('ready', flush=True)
server.serve_forever()
`;

/** Answers every question for the one name with the one address, all others with NXDOMAIN. Arguments: name, address, servers. */
const dnsProgram = `
import socket, sys, threading
name, address, servers = sys.argv[1], sys.argv[2], sys.argv[3:]
wanted = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.')) + b'\\0'
def serve(sock):
    while True:
        query, client = sock.recvfrom(4096)
        end = query.index(b'\\0', 12) + 5
        question, kind = query[12:end], query[end - 4:end - 2]
        known = question[:-4].lower() == wanted
        found = known and kind == b'\\0\\1'
        answer = b'\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4' + socket.inet_aton(address) if found else b''
        head = query[:2] + (b'\\x81\\x80' if known else b'\\x81\\x83') + b'\\0\\1' + (b'\\0\\1' if found else b'\\0\\0') + b'\\0\\0\\0\\0'
        sock.sendto(head + question + answer, client)
for server in servers:
    sock = socket.socket(socket.AF_INET6 if ':' in server else socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((server, 53))
    threading.Thread(target=serve, args=(sock,), daemon=True).start()
print('ready', flush=True)
threading.Event().wait()
`;

/** Sends back what it gets, by TCP once the sender has ended, and by UDP. Arguments: address, port. */
const echoProgram = `
import socket, sys, threading
here = (sys.argv[1], int(sys.argv[2]))
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); datagrams.bind(here)
listener = socket.create_server(here)
def answer():
    while True:
        data, client = datagrams.recvfrom(65536)
        datagrams.sendto(data, client)
def serve(client):
    data = b''
    while part := client.recv(65536): data += part
    client.sendall(data); client.close()
threading.Thread(target=answer, daemon=True).start()
print('ready', flush=True)
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
`;

/** Passes connections on. Arguments: address and port to listen on, address to pass on to (same port). */
const relayProgram = `
import socket, sys, threading
here, port, target = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def pump(source, sink):
    try:
        while data := source.recv(65536): sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError: sink.close()
def serve(client):
    try: server = socket.create_connection((target, port))
    except OSError: return client.close()
    threading.Thread(target=pump, args=(server, client), daemon=True).start()
    pump(client, server)
listener = socket.create_server((here, port), backlog=64)
print('ready', flush=True)
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
`;

/** See the file's head. */
export class OutsideWorld {
  readonly #children: ChildProcess[] = [];

  private constructor(
    private readonly name: string,
    private readonly node: string,
  ) {}

  /** Makes it, and the uplink of the node's namespace. */
  static async open(node: HostNamespace): Promise<OutsideWorld> {
    const world = new OutsideWorld(`${node.name}-out`, node.name);
    try {
      await world.#setUp(node);
      return world;
    } catch (cause) {
      world.close();
      throw cause;
    }
  }

  /** A public port of the outside that leads to the same port of the node: what a tunnel does for a program there. */
  async relay(port: number): Promise<string> {
    await this.#start(this.name, ['python3', '-c', relayProgram, outside.address, String(port), nodeUplink]);
    return `http://${outside.address}:${port}`;
  }

  /** A server that sends back what it gets, by TCP and UDP. */
  async echo(port: number): Promise<void> {
    await this.#start(this.name, ['python3', '-c', echoProgram, outside.address, String(port)]);
  }

  /** Makes the uplink carry packets of this size at most. */
  narrow(bytes: number): void {
    ip('-n', this.node, 'link', 'set', 'wan0', 'mtu', String(bytes));
    ip('-n', this.name, 'link', 'set', 'lan0', 'mtu', String(bytes));
  }

  /** Removes it, and the uplink: connections whose other side is gone would keep the namespace for minutes. */
  close(): void {
    for (const child of this.#children) child.kill('SIGKILL');
    spawnSync('ip', ['-n', this.name, 'link', 'delete', 'lan0']);
    execFileSync('ip', ['netns', 'delete', this.name]);
  }

  async #setUp(node: HostNamespace): Promise<void> {
    ip('netns', 'add', this.name);
    ip('link', 'add', 'wan0', 'netns', node.name, 'type', 'veth', 'peer', 'name', 'lan0', 'netns', this.name);
    for (const [space, link, address] of [
      [node.name, 'wan0', nodeUplink],
      [this.name, 'lan0', gateway],
    ] as const) {
      ip('-n', space, 'addr', 'add', `${address}/24`, 'dev', link);
      ip('-n', space, 'link', 'set', link, 'up');
    }
    ip('-n', node.name, 'route', 'add', 'default', 'via', gateway);
    ip('-n', this.name, 'link', 'set', 'lo', 'up');
    ip('-n', this.name, 'addr', 'add', `${outside.address}/32`, 'dev', 'lo');
    const servers = nameservers();
    for (const server of servers.filter((one) => !/^(127\.|::1$)/.test(one)))
      ip('-n', node.name, 'addr', 'add', `${server}/${isIP(server) === 4 ? 32 : 128}`, 'dev', 'lo');
    await this.#start(this.name, ['python3', '-c', webProgram, outside.address]);
    await this.#start(node.name, ['python3', '-c', dnsProgram, outside.name, outside.address, ...servers]);
  }

  async #start(namespace: string, argv: string[]): Promise<void> {
    const child = spawn('nsenter', [`--net=/run/netns/${namespace}`, '--', ...argv], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    this.#children.push(child);
    await new Promise<unknown>((resolve, reject) => {
      createInterface({ input: child.stdout }).once('line', resolve);
      child.once('exit', (code) => reject(new Error(`a server of the outside world ended with ${code}`)));
    });
  }
}

/** As the node's DNS proxy reads them: at most three, this host if there is none. */
function nameservers(): string[] {
  const found = [...readFileSync('/etc/resolv.conf', 'utf8').matchAll(/^\s*nameserver\s+([^\s#;%]+)/gm)]
    .map((match) => match[1] as string)
    .filter((address) => isIP(address) !== 0);
  return found.length > 0 ? [...new Set(found.slice(0, 3))] : ['127.0.0.1'];
}

function ip(...args: string[]): void {
  execFileSync('ip', args, { timeout: 20_000 });
}
