/** References as Docker reads them. */
import { describe, expect, test } from 'vitest';
import { canonicalReference, parseReference } from './reference.js';

const DIGEST = `sha256:${'a'.repeat(64)}`;

describe('parseReference', () => {
  test.each([
    ['python', 'docker.io/library/python:latest'],
    ['python:3.11-slim', 'docker.io/library/python:3.11-slim'],
    ['bitnami/wordpress', 'docker.io/bitnami/wordpress:latest'],
    ['docker.io/python', 'docker.io/library/python:latest'],
    ['index.docker.io/a/b', 'docker.io/a/b:latest'],
    ['localhost/x', 'localhost/x:latest'],
    ['localhost:5000/x', 'localhost:5000/x:latest'],
    ['localhost:5000/x:y', 'localhost:5000/x:y'],
    ['127.0.0.1:5000/a/b/c:1', '127.0.0.1:5000/a/b/c:1'],
    ['[::1]:5000/x', '[::1]:5000/x:latest'],
    ['ghcr.io/a/b__c/d-e.f', 'ghcr.io/a/b__c/d-e.f:latest'],
    [`x@${DIGEST}`, `docker.io/library/x@${DIGEST}`],
    [`x:tag@${DIGEST}`, `docker.io/library/x@${DIGEST}`],
    ['Example/x', 'Example/x:latest'],
  ])('%s is %s', (text, canonical) => {
    expect(canonicalReference(parseReference(text))).toBe(canonical);
    expect(canonicalReference(parseReference(canonical))).toBe(canonical);
  });

  test.each([
    '',
    'UPPER',
    'a/Upper',
    'x:',
    'x:-bad',
    'x@sha256:short',
    `x@md5:${'a'.repeat(32)}`,
    'https://example.com/x',
    '../x',
    'a//b',
    'exa mple.com/x',
    'a_/b',
    'x\n',
    'example.com:99999999/x',
    `${'a/'.repeat(300)}x`,
  ])('%j is refused', (text) => {
    expect(() => parseReference(text)).toThrow(expect.objectContaining({ code: 'invalid-reference' }));
  });
});
