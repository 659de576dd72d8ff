/**
 * Main program of the DNS proxy process, started by `dns-proxy.ts` with an IPC channel, as a plain user whose
 * only right is to bind a low port.
 * It ends with its parent: a new node agent starts a new one.
 */
import type { FromProxy, SourcePolicy, ToProxy } from './dns-messages.js';
import { DnsServer } from './dns-server.js';
import { parseUpstream, Upstreams } from './resolv-conf.js';

/** The node agent adds to a set in about 20 ms; a guest's resolver waits 5 s. */
const admitDeadlineMs = 3_000;

function main(): void {
  const server = new DnsServer();
  const policies = new Map<string, SourcePolicy>();
  const waiting = new Map<number, (ok: boolean) => void>();
  let lastId = 0;
  const send = (message: FromProxy): void => {
    if (process.connected) process.send?.(message);
  };

  process.on('disconnect', () => process.exit(0));
  // Ctrl-C goes to the whole terminal group; the node agent decides when we end.
  process.on('SIGINT', () => {});
  process.on('SIGHUP', () => {});
  process.on('message', (message: ToProxy) => {
    switch (message.type) {
      case 'config':
        start(message).then(
          () => send({ type: 'ready' }),
          (cause: Error) => {
            send({ type: 'failed', message: cause.message });
            process.disconnect?.();
          },
        );
        break;
      case 'policy':
        policies.set(message.source, message.policy);
        break;
      case 'forget':
        policies.delete(message.source);
        break;
      case 'admitted':
        waiting.get(message.id)?.(message.ok);
        break;
    }
  });

  async function start(config: Extract<ToProxy, { type: 'config' }>): Promise<void> {
    const upstreams = new Upstreams(config.upstreams?.map(parseUpstream));
    await server.listen(config.address, config.port);
    server.serve({ upstreams, policyOf: (source) => policies.get(source), admit });
  }

  function admit(
    source: string,
    name: string,
    addresses: { address: string; ttl: number }[],
  ): Promise<boolean> {
    lastId += 1;
    const id = lastId;
    return new Promise((resolve) => {
      const settle = (ok: boolean): void => {
        clearTimeout(timer);
        waiting.delete(id);
        resolve(ok);
      };
      const timer = setTimeout(() => settle(false), admitDeadlineMs);
      waiting.set(id, settle);
      send({ type: 'admit', id, source, name, addresses });
    });
  }
}

main();
