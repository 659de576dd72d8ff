/**
 * What a registry asks for in `WWW-Authenticate` (RFC 9110, 11.6.1, and the distribution token specification).
 * Pure. Called by the authenticator.
 */

/** One scheme with its parameters. */
export interface Challenge {
  /** Lowercase: `bearer`, `basic`. */
  scheme: string;
  parameters: Record<string, string>;
}

/** Splits a header that may hold several challenges. */
export function parseChallenges(header: string): Challenge[] {
  const challenges: Challenge[] = [];
  const pattern = /([A-Za-z0-9_-]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+)))?/g;
  for (const match of header.slice(0, 8192).matchAll(pattern)) {
    const [, word, quoted, bare] = match;
    const value = quoted?.replace(/\\(.)/g, '$1') ?? bare;
    if (value === undefined) challenges.push({ scheme: word!.toLowerCase(), parameters: {} });
    else {
      const current = challenges[challenges.length - 1];
      if (current) current.parameters[word!.toLowerCase()] = value;
    }
  }
  return challenges;
}
