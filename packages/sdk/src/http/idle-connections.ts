/**
 * What happens when a kept connection turns out to be dead: every other idle one of its agent goes
 * too, so that a repeat is sent on a new connection and not on the next dead one. Used by the transport.
 */
import type http from 'node:http';
import { isBrokenConnection } from './connection-codes.js';

/** Makes the agent do so; answers the same agent. */
export function dropIdleOnLoss<T extends http.Agent>(agent: T): T {
  const reuse = agent.reuseSocket.bind(agent);
  agent.reuseSocket = (socket, request) => {
    reuse(socket, request);
    // Once there is an answer, a loss is reported by the answer, not by the request.
    request.once('error', (error) => {
      if (!isBrokenConnection(error)) return;
      for (const idle of Object.values(agent.freeSockets)) for (const one of idle ?? []) one.destroy();
    });
  };
  return agent;
}
