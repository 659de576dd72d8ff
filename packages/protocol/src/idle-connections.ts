/**
 * How long idle HTTP connections are kept: by our servers clearly longer than by our clients. A server that closes one while a
 * request is on its way to it leaves open whether that request was carried out, and nobody may send a command twice.
 */

/** Our servers, the public one and a node agent's: above the 60 s that common reverse proxies keep theirs. */
export const serverKeepsIdleMs = 75_000;

/** Our clients: the control plane's to a node agent, the SDK's to a server (ours, or a proxy before it that closes early). */
export const clientKeepsIdleMs = 15_000;
