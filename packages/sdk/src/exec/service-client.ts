/**
 * The exec service over the SDK's own transport: as much of the Connect protocol as it takes
 * (connectrpc.com/docs/protocol), unary calls and server streams of binary messages. The library for
 * it would load three times as much code, which is most of the time of a short `sandlot run`. Made
 * by `command-channel.ts`, loaded with the first command.
 */
import {
  create,
  type DescMessage,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from '@bufbuild/protobuf';
import {
  ConnectRequestSchema,
  ConnectResponseSchema,
  SendInputRequestSchema,
  SendInputResponseSchema,
  SendSignalRequestSchema,
  SendSignalResponseSchema,
  StartRequestSchema,
  StartResponseSchema,
  UpdateRequestSchema,
  UpdateResponseSchema,
} from '@sandlot/protocol/gen/command_session_pb';
import { ConnectionError } from '../errors.js';
import { withDeadline } from '../http/deadline.js';
import { readLimited } from '../http/read-limited.js';
import type { Transport, TransportResponse } from '../http/transport.js';
import { readEnvelopes, writeEnvelope } from './envelopes.js';
import { ServiceError } from './service-error.js';

/** Marks the last message of a stream, which is JSON. */
const endStreamFlag = 0b10;
/** Marks a compressed message; we accept none. */
const compressedFlag = 0b01;
/** Answers of unary calls and refusals are short. */
const answerMaxBytes = 1024 * 1024;

/** Headers and how to end a call. */
export interface ServiceCall {
  headers: Record<string, string>;
  signal?: AbortSignal | undefined;
  /** Of a unary call; otherwise it may take as long as it needs: input waits for the command to read. */
  timeoutMs?: number | undefined;
  /** Of a stream: sees the head of the answer before its first message. */
  onHead?: ((answer: TransportResponse) => void) | undefined;
}

/** The service of one sandbox. Failures are a {@link ServiceError}, or an error of the transport. */
export class ServiceClient {
  constructor(
    private readonly baseUrl: string,
    private readonly transport: Transport,
  ) {}

  /** Starts a command. */
  start(request: MessageInitShape<typeof StartRequestSchema>, call: ServiceCall) {
    return this.#stream('Start', StartRequestSchema, StartResponseSchema, request, call);
  }

  /** Attaches to a session. */
  connect(request: MessageInitShape<typeof ConnectRequestSchema>, call: ServiceCall) {
    return this.#stream('Connect', ConnectRequestSchema, ConnectResponseSchema, request, call);
  }

  /** Feeds standard input or a terminal. */
  sendInput(request: MessageInitShape<typeof SendInputRequestSchema>, call: ServiceCall) {
    return this.#unary('SendInput', SendInputRequestSchema, SendInputResponseSchema, request, call);
  }

  /** Sends a signal. */
  sendSignal(request: MessageInitShape<typeof SendSignalRequestSchema>, call: ServiceCall) {
    return this.#unary('SendSignal', SendSignalRequestSchema, SendSignalResponseSchema, request, call);
  }

  /** Changes the size of a terminal. */
  update(request: MessageInitShape<typeof UpdateRequestSchema>, call: ServiceCall) {
    return this.#unary('Update', UpdateRequestSchema, UpdateResponseSchema, request, call);
  }

  /** Tells what of a session's output came in. No method of the service: only we have it. */
  async confirm(query: string, { headers, signal, timeoutMs }: ServiceCall & { timeoutMs: number }) {
    await withDeadline('confirm', timeoutMs, signal, async (either) => {
      const answer = await this.transport.send({
        method: 'POST',
        url: `${this.baseUrl}/received?${query}`,
        headers,
        body: new Uint8Array(0),
        signal: either,
        idleTimeoutMs: 0,
      });
      const text = await readLimited(answer.body, answerMaxBytes);
      if (answer.status !== 200) throw ServiceError.fromAnswer(answer.status, text);
    });
  }

  async #unary<I extends DescMessage, O extends DescMessage>(
    method: string,
    input: I,
    output: O,
    request: MessageInitShape<I>,
    call: ServiceCall,
  ): Promise<MessageShape<O>> {
    const body = toBinary(input, create(input, request));
    const work = async (signal: AbortSignal | undefined) => {
      const answer = await this.#send(method, 'application/proto', body, { ...call, signal });
      return fromBinary(output, await readLimited(answer.body, answerMaxBytes));
    };
    return call.timeoutMs === undefined
      ? work(call.signal)
      : withDeadline(method, call.timeoutMs, call.signal, work);
  }

  async *#stream<I extends DescMessage, O extends DescMessage>(
    method: string,
    input: I,
    output: O,
    request: MessageInitShape<I>,
    call: ServiceCall,
  ): AsyncGenerator<MessageShape<O>> {
    const body = writeEnvelope(0, toBinary(input, create(input, request)));
    const answer = await this.#send(method, 'application/connect+proto', body, call);
    call.onHead?.(answer);
    for await (const { flags, data } of readEnvelopes(answer.body)) {
      if (flags & compressedFlag)
        throw new ConnectionError('a message of the stream is compressed, which was not asked for', {
          code: 'BAD_ANSWER',
        });
      if (flags & endStreamFlag) {
        const { error } = JSON.parse(new TextDecoder().decode(data)) as { error?: unknown };
        if (error) throw ServiceError.fromJson(error, 'unknown', false);
        return;
      }
      yield fromBinary(output, data);
    }
    throw new ConnectionError('the stream broke off', { code: 'STREAM_ENDED' });
  }

  async #send(
    method: string,
    contentType: string,
    body: Uint8Array,
    { headers, signal }: ServiceCall,
  ): Promise<TransportResponse> {
    const answer = await this.transport.send({
      method: 'POST',
      url: `${this.baseUrl}/command_session.CommandSession/${method}`,
      headers: { ...headers, 'content-type': contentType, 'connect-protocol-version': '1' },
      body,
      signal,
      // A command may be silent for as long as it likes, and a slow reader may let the stream wait.
      idleTimeoutMs: 0,
    });
    if (answer.status === 200) return answer;
    throw ServiceError.fromAnswer(answer.status, await readLimited(answer.body, answerMaxBytes));
  }
}
