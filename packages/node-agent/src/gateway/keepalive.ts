/** Puts a sign of life into a stream of events that is silent. */

/**
 * All of `source`, and `'keepalive'` whenever nothing came for `silenceMs`. Pulls one event at a
 * time, so that a slow reader slows the source.
 */
export async function* withKeepalive<T>(
  source: AsyncGenerator<T>,
  silenceMs: number,
): AsyncGenerator<T | 'keepalive'> {
  let next = source.next();
  // Its rejection is seen where it is awaited; a return before that must not end the process.
  next.catch(() => {});
  try {
    for (;;) {
      let timer: NodeJS.Timeout | undefined;
      const silence = new Promise<'keepalive'>((resolve) => {
        timer = setTimeout(resolve, silenceMs, 'keepalive' as const);
      });
      const first = await Promise.race([next, silence]).finally(() => clearTimeout(timer));
      if (first === 'keepalive') {
        yield first;
        continue;
      }
      if (first.done) return;
      yield first.value;
      next = source.next();
      next.catch(() => {});
    }
  } finally {
    await source.return(undefined);
  }
}
