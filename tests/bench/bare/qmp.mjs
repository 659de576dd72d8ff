// QEMU's control socket for the bare mechanism: one command at a time, in order. Used by machine.mjs.
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** Connects to a unix socket that may not be there yet. */
export async function connectUnix(path, timeoutMs = 10_000) {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const socket = net.connect(path);
    const failed = await new Promise((resolve) => {
      socket.once('connect', () => resolve(undefined));
      socket.once('error', resolve);
    });
    socket.removeAllListeners('error');
    if (!failed) return socket;
    if (performance.now() > deadline)
      throw new Error(`${path} did not answer in ${timeoutMs} ms`, { cause: failed });
    await sleep(1);
  }
}

/** Splits what a socket sends into lines and hands each to `take`. */
export function onLines(socket, take) {
  let rest = '';
  socket.setEncoding('utf8');
  socket.on('data', (text) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop();
    for (const line of lines) take(line);
  });
}

/** A negotiated control connection. */
export class Qmp {
  #socket;
  #waiting = [];

  static async open(path) {
    const qmp = new Qmp();
    qmp.#socket = await connectUnix(path);
    qmp.#socket.on('error', () => {});
    qmp.#socket.on('close', () => {
      for (const { reject } of qmp.#waiting.splice(0)) reject(new Error('QEMU closed its control socket'));
    });
    const greeted = new Promise((resolve) => {
      onLines(qmp.#socket, (line) => {
        const message = JSON.parse(line);
        if (message.QMP) resolve();
        else if (!message.event) qmp.#waiting.shift()?.settle(message);
      });
    });
    await greeted;
    await qmp.run('qmp_capabilities');
    return qmp;
  }

  run(execute, args) {
    const answered = new Promise((resolve, reject) => {
      const settle = ({ error, return: value }) =>
        error ? reject(new Error(`${execute}: ${error.desc}`)) : resolve(value);
      this.#waiting.push({ settle, reject });
    });
    this.#socket.write(`${JSON.stringify({ execute, arguments: args })}\n`);
    return answered;
  }

  close() {
    this.#socket.destroy();
  }
}
