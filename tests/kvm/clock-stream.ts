/** How late a guest's wall clock is, without the time that a call takes: the guest tells it line by line. Used by `sandbox.test.ts`. */
import { once } from 'node:events';
import type { TestServer } from '../driver/test-server.js';

/** What was heard. */
export interface ClockAnswer {
  /** Clock source of the guest's kernel. */
  source: string;
  /** Seconds from a line's time to its arrival, the least of all lines: lateness of the clock, and of the line. */
  lateS: number;
  /** Seconds since the guest's boot as its monotonic clock has them. */
  uptimeS: number;
}

const lines = 15;
const program =
  'cat /sys/devices/system/clocksource/clocksource0/current_clocksource /proc/uptime; i=0; ' +
  `while [ $i -lt ${lines} ]; do i=$((i+1)); /usr/bin/date +%s.%N; sleep 0.2; done`;

/** Asks. The image needs coreutils' `date` at /usr/bin, because busybox's has no fractions. */
export async function readGuestClock(server: TestServer, id: string): Promise<ClockAnswer> {
  const child = server.spawn(['run', id, '--', '/bin/sh', '-c', program]);
  let text = '';
  let seen = 0;
  let lateS = Number.POSITIVE_INFINITY;
  child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
    const arrived = Date.now() / 1000;
    text += chunk;
    const whole = text.split('\n').slice(0, -1);
    for (const line of whole.slice(Math.max(seen, 2))) lateS = Math.min(lateS, arrived - Number(line));
    seen = whole.length;
  });
  let problem = '';
  child.stderr?.setEncoding('utf8').on('data', (chunk: string) => (problem += chunk));
  child.stdin?.end();
  const [code] = (await once(child, 'close')) as [number];
  const [source = '', uptime = ''] = text.split('\n');
  if (code !== 0 || seen !== lines + 2)
    throw new Error(`the guest's clock: exit ${code}, output ${text}, ${problem}\n${server.logs()}`);
  return { source, lateS, uptimeS: Number(uptime.split(' ')[0]) };
}
