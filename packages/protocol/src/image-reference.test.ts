import { expect, it } from 'vitest';
import { canonicalImageReference, parseImageReference } from './image-reference.js';

it('fills in what a short name leaves out', () => {
  const canonical = (text: string) => canonicalImageReference(parseImageReference(text));
  expect(canonical('python:3.11-slim')).toBe('docker.io/library/python:3.11-slim');
  expect(canonical('127.0.0.1:5000/a/b')).toBe('127.0.0.1:5000/a/b:latest');
});

it('says what a name must look like', () => {
  expect(() => parseImageReference('Bad Name')).toThrow(
    /is not an image reference: .*; use NAME, NAME:TAG, NAME@sha256:… or REGISTRY\/NAME:TAG$/,
  );
});
