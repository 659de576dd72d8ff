// The product as a client sees it: plain HTTP to the server of this machine, with the URL and key that
// `sandlot config` names. Used by the groups.
import { execFile } from 'node:child_process';
import http from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../..');

/** Runs the command line; answers its stdout. */
export async function sandlot(...args) {
  const { stdout } = await run(path.join(root, 'bin/sandlot'), args, {
    maxBuffer: 64 * 1024 ** 2,
    cwd: root,
  });
  return stdout;
}

/** A connection to the running server. */
export async function openServer() {
  const { url, api_key: key } = JSON.parse(await sandlot('config', '--output', 'json'));
  const server = new Server(url, key);
  server.status = await server.json('GET', '/api/v1/status');
  return server;
}

class Server {
  #agent = new http.Agent({ keepAlive: true, maxSockets: 128 });

  constructor(url, key) {
    this.url = url;
    this.key = key;
  }

  close() {
    this.#agent.destroy();
  }

  /** One call. `body`: an object becomes JSON, a function writes the request itself. Answers status, length, text. */
  send(method, target, { body, headers = {}, token = this.key, discard = false } = {}) {
    const { hostname, port, pathname, search } = new URL(target, this.url);
    return new Promise((resolve, reject) => {
      const asJson = typeof body === 'object' ? JSON.stringify(body) : undefined;
      const request = http.request({
        agent: this.#agent,
        method,
        hostname,
        port,
        path: pathname + search,
        headers: {
          authorization: `Bearer ${token}`,
          ...(asJson
            ? { 'content-type': 'application/json', 'content-length': Buffer.byteLength(asJson) }
            : {}),
          ...headers,
        },
      });
      request.once('error', reject);
      request.setTimeout(300_000, () =>
        request.destroy(new Error(`${method} ${target}: nothing moved for five minutes`)),
      );
      request.once('response', async (answer) => {
        try {
          const chunks = [];
          let length = 0;
          for await (const chunk of answer) {
            length += chunk.length;
            if (!discard || answer.statusCode >= 400) chunks.push(chunk);
          }
          const text = Buffer.concat(chunks).toString();
          if (answer.statusCode >= 400)
            throw new Error(`${method} ${target}: ${answer.statusCode} ${text.slice(0, 500)}`);
          resolve({ status: answer.statusCode, length, text });
        } catch (error) {
          reject(error);
        }
      });
      if (typeof body === 'function') body(request);
      else request.end(asJson);
    });
  }

  async json(method, target, options) {
    return JSON.parse((await this.send(method, target, options)).text);
  }

  /** Creates a sandbox and waits until it runs. `more`: further fields of the request. */
  async create(image, labels = ['bench'], more = {}) {
    const { id } = await this.json('POST', '/api/v1/sandbox', {
      body: {
        name: 'bench',
        docker_image: image,
        cpu_cores: 1,
        memory_gb: 1,
        disk_size_gb: 5,
        labels,
        timeout_minutes: 60,
        ...more,
      },
    });
    const deadline = performance.now() + 300_000;
    for (;;) {
      const info = await this.json('GET', `/api/v1/sandbox/${id}?wait=20`);
      if (info.status === 'RUNNING') return id;
      if (!['PENDING', 'PROVISIONING'].includes(info.status) || performance.now() > deadline) {
        throw new Error(`sandbox ${id} is ${info.status}: ${JSON.stringify(info).slice(0, 500)}`);
      }
    }
  }

  /** Base URL and token of a sandbox's gateway. */
  async authorize(id) {
    const auth = await this.json('POST', `/api/v1/sandbox/${id}/auth`, { body: {} });
    return { base: `${auth.gateway_url}/${auth.user_ns}/${auth.job_id}`, token: auth.token };
  }

  /** Runs a command line through the gateway; throws when it does not exit with 0. `more`: further fields of the request. */
  async exec(gateway, command, more = {}) {
    const answer = await this.json('POST', `${gateway.base}/exec`, {
      token: gateway.token,
      body: { command, ...more },
    });
    if (answer.exit_code !== 0) throw new Error(`${command}: exit ${answer.exit_code} ${answer.stderr}`);
    return answer.stdout;
  }

  /** Deletes and waits until the machine is gone. */
  async remove(id) {
    await this.send('DELETE', `/api/v1/sandbox/${id}`);
  }

  /** Deletes everything a benchmark has made. */
  async removeAll() {
    await this.send('DELETE', '/api/v1/sandbox', { body: { labels: ['bench'] } });
  }
}

/** From POST to the result of the first exec, ms; the sandbox stays. */
export async function timeFirstExec(server, image, command = 'echo hello') {
  const begin = performance.now();
  const id = await server.create(image);
  await server.exec(await server.authorize(id), command);
  return { id, ms: performance.now() - begin };
}
