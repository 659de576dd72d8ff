// Exits 0 when Docker Hub answers within five seconds, whatever the answer. Called by all.sh: if it does
// not, the stand-in image is built while other steps run, instead of after them.
try {
  await fetch('https://registry-1.docker.io/v2/', { signal: AbortSignal.timeout(5000) });
} catch {
  process.exitCode = 1;
}
