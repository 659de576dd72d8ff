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
        throw new ImageError('unauthorized', `${this.registry} asks for a user name and password; give them`);
      }
      this.header = basic(this.credentials);
      return;
    }
    throw new ImageError(
      'unauthorized',
      `${this.registry} refuses access to ${this.repository} and asks for ${challenges.map(({ scheme }) => scheme).join(', ') || 'nothing'} that we could answer`,
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
      throw new ImageError('unauthorized', `the token server ${url.host} of ${this.registry} gave no token`);
    }
    return token;
  }

  private parseRealm(realm: string, isEncrypted: boolean): URL {
    let url: URL;
    try {
      url = new URL(realm);
    } catch (cause) {
      throw new ImageError('unauthorized', `${this.registry} names a token server that is no URL`, { cause });
    }
    if (url.protocol === 'https:' || (url.protocol === 'http:' && !isEncrypted)) return url;
    throw new ImageError(
      'insecure-registry',
      `${this.registry} sends us to the token server ${url.host} without encryption; credentials are not sent there`,
    );
  }
}

function basic({ username, password }: Credentials): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
}
