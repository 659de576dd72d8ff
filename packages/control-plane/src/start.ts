/**
 * Puts the control plane together and runs it in this process: store, node link, operations, API,
 * listeners. Used by `main.ts` and by tests. Closing it leaves sandboxes running.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { ensureFirstUser } from './app/accounts.js';
import { Reports } from './app/apply-report.js';
import { ChangeHub } from './app/change-hub.js';
import { CheckpointWork } from './app/checkpoint-work.js';
import type { AppContext } from './app/context.js';
import { Dispatcher } from './app/dispatch.js';
import { GatewayTokens } from './app/gateway-tokens.js';
import { Lifecycle } from './app/lifecycle.js';
import { Reconciler } from './app/reconcile.js';
import { Resumes } from './app/resumes.js';
import { CertificateWatch } from './edge/certificate.js';
import { Forwarder } from './edge/forwarder.js';
import { FrontServer } from './edge/front-server.js';
import { type ApiServer, buildApiServer } from './http/api-server.js';
import { Fleet } from './nodes/fleet.js';
import { NodeLink } from './nodes/node-link.js';
import type { ControlPlaneOptions } from './options.js';
import { SecretBox } from './store/secret-box.js';
import { Store } from './store/store.js';

/** What tests may put in place of the real thing. */
export interface StartHooks {
  log: Logger;
  /** Milliseconds since 1970. */
  now?: () => number;
  reconcileIntervalMs?: number;
  /** How often the files of the certificate are looked at. */
  certificateLookMs?: number;
  /** How long a client may take for the body of an API request. */
  bodyTimeoutMs?: number;
}

/** A control plane that runs. */
export interface ControlPlane {
  /** `http://host:port` of the public listener, or `https://…`. */
  address: string;
  /** One pass now; for tests that move the clock. */
  reconcile(): Promise<void>;
  /** Stops listening, ends what is at work, closes the database. Sandboxes stay. */
  close(): Promise<void>;
}

const defaultReconcileMs = 5_000;
/** Streams of the gateway may run for hours; a stop does not wait for them. */
const closeGraceMs = 2_000;

/** Starts a control plane; resolves when it takes requests. */
export async function startControlPlane(
  options: ControlPlaneOptions,
  hooks: StartHooks,
): Promise<ControlPlane> {
  const now = hooks.now ?? Date.now;
  const certificates = options.tls && new CertificateWatch(options.tls, options.publicUrl, hooks.log);
  const core = await openCore(options, hooks.log, now);
  const { app, reconciler } = core;
  let address = '';
  let closing = false;
  let api: ApiServer | undefined;
  const forwarder = new Forwarder(options.nodeSocket, hooks.log, (outcome) =>
    api?.metrics.countGateway(outcome),
  );
  const front: FrontServer = new FrontServer(
    {
      api: (incoming, outgoing) => api?.handle(incoming, outgoing),
      gateway: (incoming, outgoing) => forwarder.forward(incoming, outgoing),
    },
    certificates?.first,
    hooks.bodyTimeoutMs,
  );
  certificates?.start((renewed) => front.renewCertificate(renewed), hooks.certificateLookMs);
  const close = async () => {
    closing = true;
    certificates?.close();
    await front.close(closeGraceMs);
    forwarder.close();
    await api?.close();
    await core.close();
  };
  try {
    api = await buildApiServer({
      app,
      log: hooks.log,
      listenOrigin: () => address,
      isLocalAdmin: (request) => front.isLocalAdmin(request),
      isClosing: () => closing,
      dataFolder: options.shownDataFolder ?? options.dataFolder,
      publicUrl: options.publicUrl,
      trustedProxies: options.trustedProxies,
    });
    const { port } = await front.listen(options.host, options.port);
    address = originOf(options.host, port, options.tls ? 'https' : 'http');
    await front.listenAdmin(options.adminSocket);
  } catch (error) {
    await close();
    throw error;
  }
  reconciler.start(hooks.reconcileIntervalMs ?? defaultReconcileMs);
  return { address, reconcile: () => reconciler.run(), close };
}

/** Everything below the API. */
async function openCore(options: ControlPlaneOptions, log: Logger, now: () => number) {
  mkdirSync(options.dataFolder, { recursive: true, mode: 0o700 });
  mkdirSync(options.keysFolder, { recursive: true, mode: 0o700 });
  const tokens = GatewayTokens.open(options.keysFolder, now);
  const secrets = SecretBox.open(join(options.keysFolder, 'secrets.key'));
  const store = await Store.open(join(options.dataFolder, 'control-plane.db'), secrets, now, (error) =>
    log.error({ err: error }, 'a checkpoint of the database failed; its log grows until one succeeds'),
  );
  await ensureFirstUser(store, now());
  // The parts know each other in a circle: reports act on commands, commands answer with reports.
  const reports: Reports = new Reports({
    store,
    log,
    now,
    fleet: () => fleet,
    dispatcher: () => dispatcher,
    lifecycle: () => lifecycle,
    resumes: () => resumes,
    onInStep: () => void reconciler.run(),
  });
  const link: NodeLink = new NodeLink(options.nodeSocket, reports, log, now);
  const fleet: Fleet = new Fleet([link]);
  const lifecycle: Lifecycle = new Lifecycle(
    store,
    fleet,
    (nodeId, report) => reports.onReport(nodeId, report),
    log,
    now,
  );
  const dispatcher: Dispatcher = new Dispatcher(store, fleet, lifecycle, log, now);
  const resumes: Resumes = new Resumes(store, dispatcher, lifecycle, now);
  const checkpoints = new CheckpointWork(store, fleet, log, now);
  const reconciler: Reconciler = new Reconciler({
    ...{ store, fleet, dispatcher, lifecycle, resumes, checkpoints, reports, log, now },
  });
  await dispatcher.open();
  const app: AppContext = {
    store,
    fleet,
    hub: new ChangeHub(store),
    dispatcher,
    lifecycle,
    resumes,
    checkpoints,
    tokens,
    log,
    now,
  };
  link.start();
  const close = async () => {
    await fleet.close();
    await reconciler.close();
    await dispatcher.idle();
    await lifecycle.idle();
    await checkpoints.idle();
    await store.close();
  };
  return { app, reconciler, close };
}

function originOf(host: string, port: number, scheme: string): string {
  const isAll = host === '0.0.0.0' || host === '::' || host === '';
  const name = isAll ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host;
  return `${scheme}://${name}:${port}`;
}
