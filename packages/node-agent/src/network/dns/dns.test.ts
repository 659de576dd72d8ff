import { createSocket } from 'node:dgram';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Answer, decode, encode } from 'dns-packet';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { neverReachable } from '../policy/ranges.js';
import { type AnsweringParts, answer } from './dns-answering.js';
import { decide, filterAnswer } from './dns-decision.js';
import type { SourcePolicy } from './dns-messages.js';
import { askUpstream } from './dns-upstream.js';
import { parseResolvConf, parseUpstream, Upstreams } from './resolv-conf.js';
import { frameTcp, TcpFrames } from './tcp-frames.js';

function policyOf(mode: SourcePolicy['names']['mode'], ...names: string[]): SourcePolicy {
  const entries = names.map((text) => ({ name: text.replace('*.', ''), wildcard: text.startsWith('*.') }));
  return { names: { mode, names: entries }, reach: { never: neverReachable, opened: [] } };
}

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

/** A DNS server on this host's loopback. */
async function startServer(
  reply: (query: Buffer) => Buffer | undefined,
): Promise<{ port: number; asked: () => number }> {
  let count = 0;
  const socket = createSocket('udp4');
  closing.push(() => socket.close());
  socket.on('message', (message, from) => {
    count += 1;
    const bytes = reply(message);
    if (bytes) socket.send(bytes, from.port, from.address);
  });
  await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
  return { port: socket.address().port, asked: () => count };
}

function respond(query: Buffer, answers: Answer[], flags = 0x180): Buffer {
  const { id, questions } = decode(query);
  return encode({ type: 'response', id: id!, flags, questions: questions!, answers });
}

const question = (name: string, type: 'A' | 'TXT' | 'AAAA' = 'A'): Buffer =>
  encode({ type: 'query', id: 77, flags: 0x100, questions: [{ name, type }] });

describe('decisions', () => {
  it('knows every mode', () => {
    const ask = (policy: SourcePolicy | undefined, name: string, type: 'A' | 'TXT' | 'AAAA' = 'A') =>
      decide({ name, type }, policy);
    const refused = { kind: 'answer', code: 5 };
    expect(ask(undefined, 'a.test')).toEqual(refused);
    expect(ask(policyOf('none'), 'a.test')).toEqual(refused);
    expect(ask(policyOf('all'), 'a.test', 'TXT')).toEqual({ kind: 'pass' });
    expect(ask(policyOf('deny', '*.a.test'), 'x.a.test')).toEqual(refused);
    expect(ask(policyOf('deny', '*.a.test'), 'a.test')).toEqual({ kind: 'pass-checked' });
    expect(ask(policyOf('list', 'a.test'), 'A.test')).toEqual({ kind: 'admit' });
    expect(ask(policyOf('list', 'a.test'), 'a.test', 'AAAA')).toEqual({ kind: 'answer', code: 0 });
    expect(ask(policyOf('list', 'a.test'), 'a.test', 'TXT')).toEqual({ kind: 'answer', code: 0 });
    expect(ask(policyOf('list', 'a.test'), 'b.test', 'TXT')).toEqual(refused);
  });

  it('keeps the chain of aliases in any order, and nothing beside it', () => {
    const answers: Answer[] = [
      { type: 'A', name: 'end.test', ttl: 9, data: '1.2.3.4' },
      { type: 'A', name: 'stranger.test', ttl: 9, data: '5.6.7.8' },
      { type: 'CNAME', name: 'middle.test', data: 'END.test' },
      { type: 'CNAME', name: 'a.test', data: 'middle.test' },
      { type: 'A', name: 'end.test', ttl: 9, data: '127.0.0.1' },
      { type: 'A', name: 'end.test', ttl: 9, data: '192.168.0.1' },
    ];
    const kept = filterAnswer('A.test', answers, policyOf('list', 'a.test'));
    expect(kept.addresses).toEqual([{ address: '1.2.3.4', ttl: 9 }]);
    expect(kept.answers.map((one) => one.name).sort()).toEqual(['a.test', 'end.test', 'middle.test']);
  });

  it('ends on aliases that go round', () => {
    const round: Answer[] = [
      { type: 'CNAME', name: 'a.test', data: 'b.test' },
      { type: 'CNAME', name: 'b.test', data: 'a.test' },
    ];
    expect(filterAnswer('a.test', round, policyOf('list', 'a.test')).addresses).toEqual([]);
  });

  it('bounds the addresses of one answer', () => {
    const many: Answer[] = Array.from({ length: 500 }, (_, n) => ({
      type: 'A',
      name: 'a.test',
      ttl: 1,
      data: `9.9.${n >> 8}.${n & 255}`,
    }));
    expect(filterAnswer('a.test', many, policyOf('list', 'a.test')).addresses).toHaveLength(64);
  });
});

describe('upstream', () => {
  it('goes on to the next server when one is silent, closed or failing', async () => {
    const failing = await startServer((query) => respond(query, [], 0x182));
    const good = await startServer((query) =>
      respond(query, [{ type: 'A', name: 'a.test', ttl: 5, data: '1.2.3.4' }]),
    );
    const closed = { address: '127.0.0.1', port: 1 };
    const upstreams = new Upstreams([
      closed,
      { address: '127.0.0.1', port: failing.port },
      { address: '127.0.0.1', port: good.port },
    ]);
    const bytes = await askUpstream(question('a.test'), upstreams);
    expect(decode(bytes)).toMatchObject({ id: 77, rcode: 'NOERROR', answers: [{ data: '1.2.3.4' }] });
  });

  it('gives the failure of the only server, and throws when none answers', async () => {
    const failing = await startServer((query) => respond(query, [], 0x182));
    const bytes = await askUpstream(
      question('a.test'),
      new Upstreams([{ address: '127.0.0.1', port: failing.port }]),
    );
    expect(decode(bytes)).toMatchObject({ rcode: 'SERVFAIL' });
    await expect(
      askUpstream(question('a.test'), new Upstreams([{ address: '127.0.0.1', port: 1 }])),
    ).rejects.toThrow('no upstream');
  });

  it('asks again over TCP when the answer was cut, and ignores answers to other questions', async () => {
    const answers: Answer[] = [{ type: 'A', name: 'a.test', ttl: 5, data: '1.2.3.4' }];
    let port = 0;
    const tcp = createServer((socket) =>
      socket.once('data', (part: Buffer) => socket.write(frameTcp(respond(part.subarray(2), answers)))),
    );
    closing.push(() => tcp.close());
    await new Promise<void>((resolve) => tcp.listen(0, '127.0.0.1', resolve));
    port = (tcp.address() as { port: number }).port;
    const udp = createSocket('udp4');
    closing.push(() => udp.close());
    udp.on('message', (message, from) => {
      const foreign = Buffer.from(respond(message, [{ type: 'A', name: 'a.test', ttl: 5, data: '6.6.6.6' }]));
      foreign.writeUInt16BE((foreign.readUInt16BE(0) + 1) & 0xffff, 0);
      udp.send(foreign, from.port, from.address);
      udp.send(respond(message, [], 0x380), from.port, from.address);
    });
    await new Promise<void>((resolve) => udp.bind(port, '127.0.0.1', resolve));
    const bytes = await askUpstream(question('a.test'), new Upstreams([{ address: '127.0.0.1', port }]));
    expect(decode(bytes).answers).toMatchObject([{ data: '1.2.3.4' }]);
  });
});

describe('answering', () => {
  async function partsWith(policy: SourcePolicy, admit: AnsweringParts['admit'] = async () => true) {
    const server = await startServer((query) =>
      respond(query, [{ type: 'A', name: decode(query).questions![0]!.name, ttl: 5, data: '1.2.3.4' }]),
    );
    const upstreams = new Upstreams([{ address: '127.0.0.1', port: server.port }]);
    return { server, parts: { upstreams, policyOf: () => policy, admit } satisfies AnsweringParts };
  }

  it('answers an allowed name only after its addresses are admitted', async () => {
    const order: string[] = [];
    const { parts } = await partsWith(policyOf('list', 'a.test'), async (source, name, addresses) => {
      await new Promise((resolve) => setTimeout(resolve, 20));
      order.push(`${source} ${name} ${addresses[0]?.address}`);
      return true;
    });
    const bytes = await answer({ message: question('a.test'), source: '10.77.0.1', transport: 'udp' }, parts);
    order.push('answered');
    expect(order).toEqual(['10.77.0.1 a.test 1.2.3.4', 'answered']);
    expect(decode(bytes!)).toMatchObject({ id: 77, rcode: 'NOERROR', answers: [{ data: '1.2.3.4' }] });
  });

  it('fails when they could not be', async () => {
    const { parts } = await partsWith(policyOf('list', 'a.test'), async () => false);
    const bytes = await answer({ message: question('a.test'), source: 's', transport: 'udp' }, parts);
    expect(decode(bytes!)).toMatchObject({ rcode: 'SERVFAIL', answers: [] });
  });

  it('asks nobody about a name that is refused', async () => {
    const { parts, server } = await partsWith(policyOf('list', 'a.test'));
    const bytes = await answer(
      { message: question('secret.b.test', 'TXT'), source: 's', transport: 'udp' },
      parts,
    );
    expect(decode(bytes!)).toMatchObject({ rcode: 'REFUSED' });
    expect(server.asked()).toBe(0);
  });

  it('gives a well-formed answer, or none, to any bytes', async () => {
    const { parts } = await partsWith(policyOf('none'));
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), async (bytes) => {
        const message = Buffer.from(bytes);
        const reply = await answer({ message, source: 's', transport: 'udp' }, parts);
        if (!reply) return;
        expect(reply.readUInt16BE(0)).toBe(message.readUInt16BE(0));
        expect(decode(reply).type).toBe('response');
      }),
      { numRuns: 300 },
    );
  });

  it('keeps EDNS and cuts what a guest cannot take over UDP', async () => {
    const large = Array.from(
      { length: 64 },
      (_, n): Answer => ({ type: 'A', name: 'a.test', ttl: 5, data: `9.9.9.${n}` }),
    );
    const server = await startServer((query) => respond(query, large));
    const upstreams = new Upstreams([{ address: '127.0.0.1', port: server.port }]);
    const parts: AnsweringParts = {
      upstreams,
      policyOf: () => policyOf('list', 'a.test'),
      admit: async () => true,
    };
    const cutReply = decode(
      (await answer({ message: question('a.test'), source: 's', transport: 'udp' }, parts))!,
    );
    expect(cutReply).toMatchObject({ flag_tc: true, answers: [] });
    const whole = decode(
      (await answer({ message: question('a.test'), source: 's', transport: 'tcp' }, parts))!,
    );
    expect(whole.answers).toHaveLength(64);
    const option: Answer = {
      type: 'OPT',
      name: '.',
      udpPayloadSize: 1232,
      flags: 0,
      extendedRcode: 0,
      ednsVersion: 0,
      flag_do: false,
      options: [],
    };
    const withOption = encode({
      type: 'query',
      id: 77,
      flags: 0x100,
      questions: [{ name: 'b.test', type: 'A' }],
      additionals: [option],
    });
    const refused = decode((await answer({ message: withOption, source: 's', transport: 'udp' }, parts))!);
    expect(refused).toMatchObject({ rcode: 'REFUSED', additionals: [{ type: 'OPT' }] });
  });
});

describe('resolv.conf', () => {
  it('reads name servers', () => {
    const text =
      '# nameserver 9.9.9.9\nsearch a.test\nnameserver 127.0.0.53\n nameserver fe80::1%eth0 # x\nnameserver bad\n';
    expect(parseResolvConf(text).map((one) => one.address)).toEqual(['127.0.0.53', 'fe80::1%eth0']);
    expect(parseResolvConf('')).toEqual([{ address: '127.0.0.1', port: 53 }]);
    expect(parseUpstream('1.2.3.4:5353')).toEqual({ address: '1.2.3.4', port: 5353 });
    expect(() => parseUpstream('dns.test')).toThrow('not the address');
  });

  it('keeps what it read while the file is replaced', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'sandlot-resolv-'));
    closing.push(() => rmSync(folder, { recursive: true, force: true }));
    const path = join(folder, 'resolv.conf');
    writeFileSync(path, 'nameserver 1.1.1.1\n');
    const upstreams = new Upstreams(undefined, path);
    expect((await upstreams.list())[0]?.address).toBe('1.1.1.1');
    rmSync(path);
    expect((await upstreams.list())[0]?.address).toBe('1.1.1.1');
  });
});

describe('TCP frames', () => {
  it('come out whole, however the stream is cut', () => {
    const messages = fc.array(fc.uint8Array({ maxLength: 80 }), { maxLength: 8 });
    fc.assert(
      fc.property(messages, fc.infiniteStream(fc.integer({ min: 1, max: 30 })), (all, sizes) => {
        const stream = Buffer.concat(all.map((message) => frameTcp(Buffer.from(message))));
        const frames = new TcpFrames();
        const out: Buffer[] = [];
        for (let at = 0; at < stream.length; ) {
          const size = sizes.next().value as number;
          out.push(...frames.push(stream.subarray(at, at + size)));
          at += size;
        }
        expect(out.map((message) => [...message])).toEqual(all.map((message) => [...message]));
      }),
    );
  });
});
