/**
 * Probes that tell from inside a guest what it reaches. Used by the network tests here with an emulated guest,
 * and by end-to-end tests in a real one: both run the same script.
 */

/** One attempt from a guest. */
export interface NetworkProbe {
  name: string;
  /** `tcp`: connect and read a line; `udp`: send and wait for any answer; `dns`: resolve a name to addresses. */
  kind: 'tcp' | 'udp' | 'dns';
  /** Address or name to reach; for `dns` the name to resolve. */
  host: string;
  port?: number;
  /** For `dns`: ask this server and not the guest's resolver. */
  server?: string;
  /** For `dns`: ask over TCP, or for another record type (its number). */
  overTcp?: boolean;
  type?: number;
}

/** What one probe found. */
export interface NetworkProbeResult {
  name: string;
  reached: boolean;
  /** `connected`, `refused`, `timeout`, `prohibited`, … or for `dns` the response code. */
  outcome: string;
  /** First bytes of the answer, or the addresses. */
  answer: string[];
  ms: number;
}

/** Addresses of a node that its sandboxes must not reach services at. */
export interface ForbiddenAddresses {
  /** The node's own addresses, e.g. of its uplink. */
  node: string[];
  /** Node addresses of other sandboxes. */
  otherSandboxes: string[];
  /** The sandbox's own address on the node and the instance's service address. */
  own: string[];
  /** Hosts in private ranges outside the node. */
  privateHosts: string[];
  /** TCP ports on which something listens there. */
  ports: number[];
}

/** The probes of which none may reach anything, under any policy. */
export function listNetworkProbes(forbidden: ForbiddenAddresses): NetworkProbe[] {
  const hosts: [string, string[]][] = [
    ['node', forbidden.node],
    ['other sandbox', forbidden.otherSandboxes],
    ['own address', forbidden.own],
    ['private host', forbidden.privateHosts],
    ['gateway', ['10.0.2.2']],
    ['resolver', ['10.0.2.3']],
    ['metadata', ['169.254.169.254']],
  ];
  return hosts.flatMap(([what, addresses]) =>
    addresses.flatMap((host) =>
      forbidden.ports.flatMap((port): NetworkProbe[] => [
        { name: `${what} ${host} tcp ${port}`, kind: 'tcp', host, port },
        { name: `${what} ${host} udp ${port}`, kind: 'udp', host, port },
      ]),
    ),
  );
}

/**
 * Python 3 program, standard library only: reads a JSON list of {@link NetworkProbe} from stdin, runs them all
 * at once, prints a JSON list of {@link NetworkProbeResult}. At most about 4 s.
 */
export const networkProbeScript = `
import json, os, socket, struct, sys, threading, time

WAIT = 1.5
CODES = {0: 'ok', 1: 'malformed', 2: 'failed', 3: 'no-such-name', 5: 'refused-name'}

def outcome_of(error):
    if isinstance(error, (TimeoutError, socket.timeout)): return 'timeout'
    if isinstance(error, ConnectionRefusedError): return 'refused'
    if isinstance(error, ConnectionResetError): return 'reset'
    if isinstance(error, socket.gaierror): return 'unresolved'
    if getattr(error, 'errno', None) in (1, 13): return 'prohibited'
    if getattr(error, 'errno', None) == 113: return 'prohibited'
    return type(error).__name__ + ' ' + str(error)

def tcp(probe):
    with socket.create_connection((probe['host'], probe['port']), WAIT) as s:
        s.settimeout(WAIT)
        try: line = s.recv(200)
        except (TimeoutError, socket.timeout): line = b''
        return 'connected', [line.decode(errors='replace').strip()]

def udp(probe):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(WAIT)
        s.connect((probe['host'], probe['port']))
        s.send(b'probe')
        return 'connected', [s.recv(200).decode(errors='replace').strip()]

def resolver():
    try:
        for line in open('/etc/resolv.conf'):
            if line.startswith('nameserver'): return line.split()[1]
    except OSError: pass
    return '10.0.2.3'

def skip_name(data, at):
    while data[at]:
        if data[at] >= 192: return at + 2
        at += data[at] + 1
    return at + 1

def ask(server, name, kind, over_tcp):
    asked = struct.pack('>HHHHHH', os.getpid() & 0xffff, 0x0100, 1, 0, 0, 0)
    for label in name.split('.'): asked += bytes([len(label)]) + label.encode()
    asked += b'\\0' + struct.pack('>HH', kind, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if over_tcp else socket.SOCK_DGRAM) as s:
        s.settimeout(WAIT * 2)
        s.connect((server, 53))
        if not over_tcp:
            s.send(asked)
            return s.recv(4096)
        s.sendall(struct.pack('>H', len(asked)) + asked)
        f = s.makefile('rb')
        return f.read(struct.unpack('>H', f.read(2))[0])

def dns(probe):
    server, kind = probe.get('server') or resolver(), probe.get('type', 1)
    data = ask(server, probe['host'], kind, probe.get('overTcp', False))
    if data[2] & 2: data = ask(server, probe['host'], kind, True)
    questions, answers = struct.unpack('>HH', data[4:8])
    at, found = 12, []
    for _ in range(questions): at = skip_name(data, at) + 4
    for _ in range(answers):
        at = skip_name(data, at)
        record, _, _, size = struct.unpack('>HHIH', data[at:at + 10])
        if record == kind: found.append(socket.inet_ntoa(data[at + 10:at + 14]) if kind == 1 else 'record')
        at += 10 + size
    return CODES.get(data[3] & 15, str(data[3] & 15)), found

def run(probe, results):
    begin = time.monotonic()
    try:
        outcome, answer = {'tcp': tcp, 'udp': udp, 'dns': dns}[probe['kind']](probe)
    except Exception as error:
        outcome, answer = outcome_of(error), []
    results.append({'name': probe['name'], 'outcome': outcome, 'answer': answer,
        'reached': outcome == 'connected' or (outcome == 'ok' and bool(answer)), 'ms': round((time.monotonic() - begin) * 1000)})

probes = json.load(sys.stdin)
results = []
threads = [threading.Thread(target=run, args=(probe, results)) for probe in probes]
for thread in threads: thread.start()
for thread in threads: thread.join()
order = {probe['name']: place for place, probe in enumerate(probes)}
results.sort(key=lambda result: order[result['name']])
print(json.dumps(results))
`;
