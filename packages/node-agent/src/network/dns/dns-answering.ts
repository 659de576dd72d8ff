/**
 * One question of a guest to one answer, in wire form: decides, asks upstream, has addresses admitted. Called
 * by `dns-server.ts` for both UDP and TCP. Never throws: a guest always gets a well-formed answer.
 */
import {
  type Answer,
  decode,
  encode,
  type Packet,
  type Question,
  RECURSION_AVAILABLE,
  RECURSION_DESIRED,
} from 'dns-packet';
import { decide, filterAnswer, leadsThroughDenied, maxUdpBytes, responseCode } from './dns-decision.js';
import type { ResolvedAddress, SourcePolicy } from './dns-messages.js';
import { askUpstream } from './dns-upstream.js';
import type { Upstreams } from './resolv-conf.js';

/** What answering needs from the process around it. */
export interface AnsweringParts {
  upstreams: Upstreams;
  policyOf(source: string): SourcePolicy | undefined;
  /** Resolves when the packet filter lets these through; false if it must not or cannot. */
  admit(source: string, name: string, addresses: ResolvedAddress[]): Promise<boolean>;
}

/** A question with where it came from. */
export interface Asked {
  message: Buffer;
  source: string;
  transport: 'udp' | 'tcp';
}

/** The answer in wire form, or undefined where none is due (not a question at all). */
export async function answer(asked: Asked, parts: AnsweringParts): Promise<Buffer | undefined> {
  const { message } = asked;
  // Too short for a header, or itself a response: answering could make a loop.
  if (message.length < 12 || message[2]! & 0x80) return undefined;
  let query: Packet;
  try {
    query = decode(message);
  } catch {
    return writeHeader(message, responseCode.malformed);
  }
  const question = query.questions?.[0];
  if ((message[2]! >> 3) & 15) return writeHeader(message, responseCode.notImplemented);
  if (!question || query.questions?.length !== 1) return writeHeader(message, responseCode.malformed);
  let full: Buffer;
  try {
    full = await answerQuestion(asked, query, question, parts);
  } catch {
    full = write(query, question, responseCode.failed);
  }
  return asked.transport === 'udp' && full.length > maxUdpBytes(query) ? cut(query, question, full) : full;
}

async function answerQuestion(
  asked: Asked,
  query: Packet,
  question: Question,
  parts: AnsweringParts,
): Promise<Buffer> {
  const policy = parts.policyOf(asked.source);
  const decision = decide(question, policy);
  if (decision.kind === 'answer' || !policy) {
    return write(query, question, decision.kind === 'answer' ? decision.code : responseCode.refused);
  }
  if (decision.kind === 'pass') return askUpstream(asked.message, parts.upstreams);
  if (decision.kind === 'pass-checked') {
    const passed = await askUpstream(asked.message, parts.upstreams);
    const denied = leadsThroughDenied(decode(passed).answers ?? [], policy);
    return denied ? write(query, question, responseCode.refused) : passed;
  }
  return answerAdmitted(asked, query, question, policy, parts);
}

async function answerAdmitted(
  asked: Asked,
  query: Packet,
  question: Question,
  policy: SourcePolicy,
  parts: AnsweringParts,
): Promise<Buffer> {
  // Asked anew and not passed on: nothing but the name leaves, so options are no tunnel.
  const clean = encode({
    type: 'query',
    id: 0,
    flags: RECURSION_DESIRED,
    questions: [{ ...question, class: 'IN' }],
  });
  const upstream = await askUpstream(clean, parts.upstreams);
  const code = upstream[3]! & 15;
  const { answers, addresses } = filterAnswer(question.name, decode(upstream).answers ?? [], policy);
  if (addresses.length > 0 && !(await parts.admit(asked.source, question.name, addresses))) {
    return write(query, question, responseCode.failed);
  }
  return write(query, question, code, answers);
}

function write(query: Packet, question: Question, code: number, answers: Answer[] = []): Buffer {
  const flags = RECURSION_AVAILABLE | ((query.flags ?? 0) & RECURSION_DESIRED) | code;
  // EDNS asks for EDNS back (RFC 6891, 6.1.1).
  const wantsOption = query.additionals?.some((record) => record.type === 'OPT') ?? false;
  const option: Answer = {
    type: 'OPT',
    name: '.',
    udpPayloadSize: 1232,
    flags: 0,
    options: [],
    extendedRcode: 0,
    ednsVersion: 0,
    flag_do: false,
  };
  return encode({
    type: 'response',
    id: query.id ?? 0,
    flags,
    questions: [question],
    answers,
    additionals: wantsOption ? [option] : [],
  });
}

/** Header with the TC bit: the guest's resolver comes back over TCP. */
function cut(query: Packet, question: Question, full: Buffer): Buffer {
  const short = write(query, question, full[3]! & 15);
  short[2] = short[2]! | 2;
  return short;
}

/** For a message whose question cannot be read: only its header goes back. */
function writeHeader(message: Buffer, code: number): Buffer {
  const header = Buffer.alloc(12);
  message.copy(header, 0, 0, 2);
  header[2] = 0x80 | (message[2]! & 0x79);
  header[3] = 0x80 | code;
  return header;
}
