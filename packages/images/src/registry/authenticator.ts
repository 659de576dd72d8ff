/**
 * Credentials for one repository of one registry: none, basic, or a bearer token from the token server that the
 * registry names. Made per pull; tokens live in it and are renewed when they are refused. Called by the client.
 */
import { ImageError } from '../store.js';
import { type Challenge, parseChallenges } from './challenge.js';

/** Name and password, or name and access token. */
export interface Credentials {
  username: string;
  password: string;
}

/** What a user does about a registry that wants to know who asks. */
export const HOW_TO_LOG_IN =
  '`docker login` where the command line runs, or `sandlot image pull --username NAME --password-stdin IMAGE`';

/** How the authenticator reaches the token server. */
export type FetchJson = (url: string, headers: Record<string, string>) => Promise<unknown>;

/** See the file's head. */
export class Authenticator {
  private header: string | undefined;

  constructor(
    private readonly registry: string,
    private readonly repository: string,
    private readonly credentials: Credentials | undefined,
    private readonly fetchJson: FetchJson,
  ) {}

  /** Headers to send with a request. */
  headers(): Record<string, string> {
    return this.header === undefined ? {} : { authorization: this.header };
  }

  /**
   * Takes the challenge of a 401 and gets what it asks for. `isEncrypted` says whether the registry itself is
   * spoken to by TLS: then the password goes nowhere without. Throws `unauthorized`.
   */
  async answer(wwwAuthenticate: string | null, isEncrypted: boolean): Promise<void> {
    const challenges = parseChallenges(wwwAuthenticate ?? '');
    const bearer = challenges.find(({ scheme, parameters }) => scheme === 'bearer' && parameters['realm']);
    if (bearer) {
      this.header = `Bearer ${await this.fetchToken(bearer, isEncrypted)}`;
      return;
    }
    if (challenges.some(({ scheme }) => scheme === 'basic')) {
      if (!this.credentials) {
        throw new ImageError(
          'unauthorized',
          `the registry ${this.registry} asks for a user name and password. Give them: ${HOW_TO_LOG_IN}`,
        );
      }
      this.header = basic(this.credentials);
      return;
    }
    throw new ImageError(
      'unauthorized',
      `the registry ${this.registry} refuses access and asks for ${challenges.map(({ scheme }) => scheme).join(', ') || 'nothing'}, which is not supported: use a registry with basic or token login, or \`sandlot image import FILE NAME\``,
    );
  }

  private async fetchToken(challenge: Challenge, isEncrypted: boolean): Promise<string> {
    const { realm, service, scope } = challenge.parameters;
    const url = this.parseRealm(realm!, isEncrypted);
    if (service !== undefined) url.searchParams.set('service', service);
    url.searchParams.set('scope', scope ?? `repository:${this.repository}:pull`);
    if (this.credentials) url.searchParams.set('account', this.credentials.username);
    const headers = this.credentials ? { authorization: basic(this.credentials) } : {};
    const json = await this.fetchJson(url.href, headers);
    const body = typeof json === 'object' && json !== null ? (json as Record<string, unknown>) : {};
    const token = body['token'] ?? body['access_token'];
    if (typeof token !== 'string' || token === '' || /[^\x21-\x7e]/.test(token)) {
      throw new ImageError(
        'unauthorized',
        `the token server ${url.host} of the registry ${this.registry} gave no token. It is faulty: try again later`,
      );
    }
    return token;
  }

  private parseRealm(realm: string, isEncrypted: boolean): URL {
    let url: URL;
    try {
      url = new URL(realm);
    } catch (cause) {
      throw new ImageError(
        'unauthorized',
        `the registry ${this.registry} names a token server that is no URL. It is set up wrongly: tell who runs it`,
        { cause },
      );
    }
    if (url.protocol === 'https:' || (url.protocol === 'http:' && !isEncrypted)) return url;
    throw new ImageError(
      'insecure-registry',
      `the registry ${this.registry} sends us to the token server ${url.host} without encryption, and credentials are not sent there. It is set up wrongly: tell who runs it`,
    );
  }
}

function basic({ username, password }: Credentials): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
}
