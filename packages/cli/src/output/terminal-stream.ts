/** A stream that may be a terminal: what decides about colours, bars and questions. */
export type TerminalStream<T> = T & { isTTY?: boolean };
