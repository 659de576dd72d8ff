/** Signal numbers of Linux x86-64 (signal(7)) by name, both ways. */

const numbers: Record<string, number> = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGILL: 4,
  SIGTRAP: 5,
  SIGABRT: 6,
  SIGBUS: 7,
  SIGFPE: 8,
  SIGKILL: 9,
  SIGUSR1: 10,
  SIGSEGV: 11,
  SIGUSR2: 12,
  SIGPIPE: 13,
  SIGALRM: 14,
  SIGTERM: 15,
  SIGXCPU: 24,
  SIGXFSZ: 25,
  SIGSYS: 31,
};

/** `SIGKILL` for 9; `SIG37` where there is no name. */
export function signalName(number: number): string {
  const known = Object.entries(numbers).find(([, value]) => value === number);
  return known?.[0] ?? `SIG${number}`;
}

/** 9 for `SIGKILL`. */
export function signalNumber(name: string): number | undefined {
  return numbers[name];
}
