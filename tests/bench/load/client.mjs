// What the load asks of the server, in as little CPU as Node allows: JSON calls on kept connections, and Connect streams
// on one of their own each. Used by every part of the load.
import http from 'node:http';

/** Flags and length before each message of a Connect stream (connectrpc.com/docs/protocol, "Streaming RPCs"). */
const envelopeBytes = 5;
const endOfStream = 0b10;
const callTimeoutMs = 120_000;

/** One user of the API. */
export class LoadClient {
  #agent = new http.Agent({ keepAlive: true, maxSockets: 512, maxFreeSockets: 512, timeout: 15_000 });
  #open = new Set();

  constructor(url, key) {
    const { hostname, port } = new URL(url);
    this.address = { hostname, port };
    this.key = key;
  }

  /** One call; answers the parsed body, throws for a status from 400 on. */
  call(method, path, body, token = this.key) {
    return new Promise((resolve, reject) => {
      const text = body === undefined ? '' : JSON.stringify(body);
      const headers = { authorization: `Bearer ${token}` };
      if (text) {
        headers['content-type'] = 'application/json';
        headers['content-length'] = Buffer.byteLength(text);
      }
      const request = http.request({ ...this.address, agent: this.#agent, method, path, headers });
      request.setTimeout(callTimeoutMs, () => request.destroy(new Error(`${method} ${path}: no answer`)));
      request.once('error', reject);
      request.once('response', (answer) => {
        const chunks = [];
        answer.on('data', (chunk) => chunks.push(chunk));
        answer.once('error', reject);
        answer.once('end', () => {
          const said = Buffer.concat(chunks).toString();
          if (answer.statusCode < 400) resolve(said === '' ? undefined : JSON.parse(said));
          else reject(new Error(`${method} ${path}: ${answer.statusCode} ${said.slice(0, 300)}`));
        });
      });
      request.end(text);
    });
  }

  /** Runs a command line by the gateway; answers its stdout. */
  async exec(gateway, command) {
    const answer = await this.call('POST', `${gateway.path}/exec`, { command }, gateway.token);
    if (answer.exit_code !== 0) throw new Error(`${command}: exit ${answer.exit_code} ${answer.stderr}`);
    return answer.stdout;
  }

  /**
   * Starts a command by the Connect service; resolves with its stream at its first message. `onEnd` hears of an end that
   * we have not asked for.
   */
  openStream(gateway, argv, onEnd) {
    return new Promise((resolve, reject) => {
      const message = Buffer.from(JSON.stringify({ command: { cmd: argv[0], args: argv.slice(1) } }));
      const head = Buffer.alloc(envelopeBytes);
      head.writeUInt32BE(message.length, 1);
      const request = http.request({
        ...this.address,
        agent: false,
        method: 'POST',
        path: `${gateway.path}/command_session.CommandSession/Start`,
        headers: {
          authorization: `Bearer ${gateway.token}`,
          'content-type': 'application/connect+json',
          'connect-protocol-version': '1',
        },
      });
      const stream = new LoadStream(request, () => this.#open.delete(stream));
      this.#open.add(stream);
      const fail = (error) => {
        if (stream.closed) return;
        stream.close();
        if (stream.started) onEnd(error);
        else reject(error);
      };
      request.once('error', fail);
      request.once('response', (answer) => {
        stream.answer = answer;
        answer.on('data', (chunk) => {
          if (stream.started) return;
          if (answer.statusCode !== 200 || chunk[0] & endOfStream) {
            fail(
              new Error(`a stream was not opened: ${answer.statusCode} ${chunk.toString().slice(0, 300)}`),
            );
            return;
          }
          stream.started = true;
          resolve(stream);
        });
        answer.once('close', () => fail(new Error('a stream ended that should go on')));
        answer.once('error', fail);
      });
      request.end(Buffer.concat([head, message]));
    });
  }

  /** Ends all streams and connections. */
  close() {
    for (const stream of this.#open) stream.close();
    this.#agent.destroy();
  }
}

/** A started command whose output comes as it is printed. */
class LoadStream {
  started = false;
  closed = false;
  answer = undefined;
  #request;
  #onClose;

  constructor(request, onClose) {
    this.#request = request;
    this.#onClose = onClose;
  }

  /** Reads no further; the connection stays. */
  stall() {
    this.answer.pause();
  }

  close() {
    this.closed = true;
    this.#request.destroy();
    this.#onClose();
  }
}
