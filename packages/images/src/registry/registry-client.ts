/**
 * The pull side of the OCI distribution API for one repository: manifests and blobs, with authentication, retries
 * and errors that a user can act on. Made per pull. Called by `pull-image.ts` and `download.ts`.
 */
import { createHash } from 'node:crypto';
import { errnoOf } from '../fault.js';
import { MEDIA_TYPES } from '../manifest/manifest.js';
import { DEFAULT_REGISTRY, type ImageReference } from '../manifest/reference.js';
import { ImageError } from '../store.js';
import { Authenticator, type Credentials, HOW_TO_LOG_IN } from './authenticator.js';
import { readBounded } from './body.js';
import { backoffMs, isTransientStatus, pause, type RetryPolicy, retryAfterMs } from './retry.js';
import {
  Connections,
  describeNetworkError,
  InsecurePolicy,
  isNotTls,
  type TransportResponse,
} from './transport.js';

/** Docker Hub's API is not where its name says. */
const DOCKER_HUB_HOST = 'registry-1.docker.io';
const ACCEPT = [
  MEDIA_TYPES.ociIndex,
  MEDIA_TYPES.dockerList,
  MEDIA_TYPES.ociManifest,
  MEDIA_TYPES.dockerManifest,
].join(', ');
const PING_MS = 5000;

/** What is asked for. Failures differ by it: an image that is not there is the user's matter, a layer is not. */
type Asked = 'manifest' | 'blob' | 'token';

/** Options of a client. */
export interface ClientOptions {
  auth: Credentials | undefined;
  insecureRegistries: string[];
  retry: RetryPolicy;
  signal: AbortSignal;
  maxManifestBytes: number;
}

/** See the file's head. */
export class RegistryClient {
  private readonly host: string;
  private readonly policy: InsecurePolicy;
  private readonly authenticator: Authenticator;
  private readonly connections = new Connections();
  private base: string | undefined;

  constructor(
    private readonly reference: ImageReference,
    private readonly options: ClientOptions,
  ) {
    this.host = reference.registry === DEFAULT_REGISTRY ? DOCKER_HUB_HOST : reference.registry;
    this.policy = new InsecurePolicy(options.insecureRegistries);
    this.authenticator = new Authenticator(
      reference.registry,
      reference.repository,
      options.auth,
      async (url, headers) => {
        const bytes = await this.getToken(url, headers);
        try {
          return JSON.parse(bytes.toString('utf8')) as unknown;
        } catch (cause) {
          throw new ImageError(
            'unauthorized',
            `the token server of the registry ${reference.registry} answers no JSON. It is faulty, or a proxy answers for it: try again later`,
            { cause },
          );
        }
      },
    );
  }

  /** A manifest or index by tag or digest, and its digest, which is checked. */
  async manifest(tagOrDigest: string): Promise<{ bytes: Buffer; digest: string }> {
    const url = `${await this.findBase()}/manifests/${tagOrDigest}`;
    const response = await this.get(url, { accept: ACCEPT }, 'manifest');
    try {
      const stated = response.header('docker-content-digest');
      const bytes = await readBounded(
        response,
        this.options.maxManifestBytes,
        `the manifest ${tagOrDigest}`,
        this.options.retry.silenceMs,
      );
      const expected = tagOrDigest.includes(':') ? tagOrDigest : stated;
      const algorithm = expected?.startsWith('sha512:') ? 'sha512' : 'sha256';
      const digest = `${algorithm}:${createHash(algorithm).update(bytes).digest('hex')}`;
      if (expected && expected !== digest) {
        throw new ImageError(
          'digest-mismatch',
          `the manifest that came for ${tagOrDigest} has the digest ${digest}, not ${expected}; the registry or something on the way changed it`,
        );
      }
      return { bytes, digest };
    } finally {
      response.cancel();
    }
  }

  /** A blob from `offset` on. The caller cancels the answer. */
  async blob(digest: string, offset: number): Promise<TransportResponse> {
    const url = `${await this.findBase()}/blobs/${digest}`;
    const headers: Record<string, string> = offset > 0 ? { range: `bytes=${offset}-` } : {};
    return this.get(url, headers, 'blob');
  }

  /** Ends its connections. */
  close(): void {
    this.connections.close();
  }

  /** Finds out once whether the registry speaks TLS; hosts for which plain HTTP is allowed may not. */
  private async findBase(): Promise<string> {
    if (this.base !== undefined) return this.base;
    let scheme = 'https';
    if (this.policy.allows(this.host) && !(await this.speaksTls())) scheme = 'http';
    this.base = `${scheme}://${this.host}/v2/${this.reference.repository}`;
    return this.base;
  }

  private async speaksTls(): Promise<boolean> {
    const { signal } = this.options;
    try {
      const request = { url: `https://${this.host}/v2/`, headers: {}, silenceMs: PING_MS, signal };
      (await this.connections.send({ ...request, policy: this.policy })).cancel();
      return true;
    } catch {
      // Whatever is wrong with TLS here, the plain request that follows tells the user about the host.
      return false;
    }
  }

  private async getToken(url: string, headers: Record<string, string>): Promise<Buffer> {
    const response = await this.get(url, headers, 'token');
    try {
      return await readBounded(
        response,
        1 << 20,
        'the answer of the token server',
        this.options.retry.silenceMs,
      );
    } finally {
      response.cancel();
    }
  }

  /** GET until it works, is refused for good, or the tries are used up. Answers 200 or 206 only. */
  private async get(url: string, headers: Record<string, string>, asked: Asked): Promise<TransportResponse> {
    const { retry, signal } = this.options;
    // The token server is asked with what the authenticator gives, and cannot send us back to itself.
    const authenticates = asked !== 'token';
    let hasAnswered = false;
    for (let attempt = 1; ; attempt++) {
      let wait = backoffMs(retry, attempt);
      try {
        const all = { ...headers, ...(authenticates ? this.authenticator.headers() : {}) };
        const response = await this.connections.send({
          url,
          headers: all,
          silenceMs: retry.silenceMs,
          signal,
          policy: this.policy,
        });
        if (response.status === 200 || response.status === 206) return response;
        const detail = await readDetail(response, retry.silenceMs);
        response.cancel();
        if (response.status === 401 && authenticates && !hasAnswered) {
          hasAnswered = true;
          await this.authenticator.answer(response.header('www-authenticate'), url.startsWith('https:'));
          attempt--;
          continue;
        }
        const retryAfter = retryAfterMs(response.header('retry-after'), Date.now());
        const error = this.statusError(response.status, { asked, url, detail, retryAfter });
        const isPatient = retryAfter === undefined || retryAfter <= retry.maxRetryAfterMs;
        if (!isTransientStatus(response.status) || attempt >= retry.tries || !isPatient) throw error;
        wait = Math.max(wait, retryAfter ?? 0);
      } catch (error) {
        this.rethrowFinal(error, attempt, new URL(url).host);
      }
      await pause(wait, signal);
    }
  }

  /** Throws what another try cannot change, or what the last try threw. */
  private rethrowFinal(error: unknown, attempt: number, host: string): void {
    const { signal, retry } = this.options;
    if (error instanceof ImageError) throw error;
    if (signal.aborted) {
      throw new ImageError('aborted', 'the pull was cancelled', { cause: error });
    }
    const registry = this.nameOf(host);
    if (isNotTls(error)) {
      throw new ImageError(
        'insecure-registry',
        `${registry} does not speak TLS, and without encryption nothing is fetched from it. If you trust the network to it, \`sandlot up --restart --insecure-registry ${host}\` allows it`,
        { cause: error },
      );
    }
    const reason = describeNetworkError(error);
    const isCertificate = /certificate|self.signed/i.test(reason);
    // A name that DNS does not know rarely appears a second later.
    const tries = errnoOf(error) === 'ENOTFOUND' ? Math.min(2, retry.tries) : retry.tries;
    if (attempt < tries && !isCertificate) return;
    throw new ImageError(
      'unreachable',
      isCertificate
        ? `the certificate of ${registry} is not trusted here (${reason}). Give the file of its authority in NODE_EXTRA_CA_CERTS to \`sandlot up --restart\``
        : `${registry} cannot be reached: ${reason}, tried ${attempt} times. Check the name, the network and DNS of the node, or bring the image as a file: \`sandlot image import FILE NAME\``,
      { cause: error },
    );
  }

  private statusError(
    status: number,
    answer: { asked: Asked; url: string; detail: string; retryAfter: number | undefined },
  ): ImageError {
    const { asked, url, detail, retryAfter } = answer;
    const said = detail === '' ? '' : ` (it says: ${detail})`;
    const registry = this.nameOf(new URL(url).host);
    if (status === 404 && asked !== 'token') {
      return new ImageError(
        'not-found',
        asked === 'manifest'
          ? `${registry} has no such image${said}. Check the spelling of name and tag`
          : `${registry} has the image, but not its part ${url.split('/').at(-1)}${said}. It must be pushed there again`,
      );
    }
    if (status === 401 || status === 403) {
      const { auth } = this.options;
      return new ImageError(
        'unauthorized',
        auth
          ? `${registry} refuses it to the user ${JSON.stringify(auth.username)}${said}. Check user, password and permissions`
          : `${registry} refuses it without login${said}: it does not exist or is private. Check the name, or give credentials: ${HOW_TO_LOG_IN}`,
      );
    }
    if (status === 429) {
      const when =
        retryAfter === undefined ? 'later' : `in ${Math.max(1, Math.ceil(retryAfter / 1000))} seconds`;
      return new ImageError(
        'rate-limited',
        `${registry} limits how much may be pulled, and the limit is reached${said}. Try again ${when}, or log in for a higher limit: ${HOW_TO_LOG_IN}`,
      );
    }
    return new ImageError('unreachable', `${registry} answers with status ${status}${said}. Try again later`);
  }

  /** Docker Hub by the name that users know; a host that the registry sends us to as such. */
  private nameOf(host: string): string {
    const { registry } = this.reference;
    return host === this.host
      ? `the registry ${registry}`
      : `${host}, where the registry ${registry} sends us,`;
  }
}

/** The registry's own words from an error's body, shortened to one line. */
async function readDetail(response: TransportResponse, silenceMs: number): Promise<string> {
  const bytes = await readBounded(response, 64 * 1024, 'an error', silenceMs).catch(() => Buffer.alloc(0));
  const text = bytes.toString('utf8');
  let message = text;
  try {
    const { errors, details } = JSON.parse(text) as { errors?: { message?: string }[]; details?: string };
    message = errors?.[0]?.message ?? details ?? '';
  } catch {
    // Proxies answer with pages; those say nothing to a user.
    if (text.trimStart().startsWith('<')) message = '';
  }
  // Another machine's words may go to a terminal.
  return String(message)
    .replace(/\p{Cc}+/gu, ' ')
    .trim()
    .slice(0, 200);
}
