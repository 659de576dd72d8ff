/**
 * What the bearer of a gateway token may do in a sandbox: its owner everything, an agent (claim `view`) commands in the
 * default view alone. Made by the gateway for each request; every exec and every look at a session goes through it.
 */
import {
  compileSchema,
  type ExecAttachment,
  type ExecInfo,
  type ExecStart,
  type GuestView,
  guestViewOf,
  isSameView,
  View,
  viewIssues,
} from '@sandlot/protocol';
import type { ExecEvent } from '../guest/exec-stream.js';
import type { Sandbox } from '../sandbox/sandbox.js';
import { GatewayError } from './failures.js';
import { requireGuest } from './require-guest.js';

const checkView = compileSchema(View);
/** Lists of the guest's that may be overtaken by starts before one gives up. */
const maxLooks = 20;

/** A started exec, as its caller reads it; see `ExecStream`. */
export interface OpenExec {
  events(): AsyncGenerator<ExecEvent>;
  cancel(): void;
}

/** One request's rights. */
export class SandboxAccess {
  /**
   * @param isConfined the token is an agent's
   */
  constructor(
    readonly sandbox: Sandbox,
    readonly isConfined: boolean,
  ) {}

  /**
   * Starts a command in the view that was asked for, or in the default one.
   * @param asked the request's own view; null and undefined are none
   * @throws GatewayError 422 for a view that is none, 403 for one that this token may not have
   */
  async exec(
    spec: ExecStart,
    asked: unknown,
    signal?: AbortSignal,
    attachment?: ExecAttachment,
  ): Promise<OpenExec> {
    const view = this.#viewOf(asked);
    const guest = requireGuest(this.sandbox);
    const { spec: made, views } = this.sandbox;
    const inDefault = view !== undefined && made.view !== undefined && isSameView(view, made.view);
    const open = () => guest.exec(view ? { ...spec, view } : spec, signal, attachment);
    // Nobody is confined to a view that there is not.
    if (!made.view) return open();
    const { sessionId } = spec;
    if (sessionId === undefined) return inDefault ? views.follow(await open()) : open();
    if (!inDefault) return views.startOutside(sessionId, view !== undefined, open);
    // A start with a known id attaches.
    if (this.isConfined && (await this.#isForbidden(sessionId)))
      throw forbidden(`The session ${sessionId} was started outside of the view.`);
    return open();
  }

  /** The execs that this token may see, running and retained. */
  async listExecs(): Promise<ExecInfo[]> {
    const { sessions } = await requireGuest(this.sandbox).listExecs();
    return this.isConfined ? sessions.filter((info) => this.sandbox.views.isInside(info)) : sessions;
  }

  /**
   * The id again, if this token may act on that exec.
   * @throws GatewayError 404 otherwise: to an agent, what is outside its view is not there
   */
  async requireExec(execId: string): Promise<string> {
    if (!this.isConfined) return execId;
    if ((await this.listExecs()).some((info) => info.id === execId)) return execId;
    throw new GatewayError(404, 'no_such_session', `There is no session ${execId} in the view.`);
  }

  /** The exec that has this pid now, running or retained. */
  async findExecByPid(pid: number): Promise<ExecInfo | undefined> {
    const execs = await this.listExecs();
    return execs.find((info) => info.pid === pid && !info.end) ?? execs.find((info) => info.pid === pid);
  }

  async #isForbidden(sessionId: string): Promise<boolean> {
    const { views } = this.sandbox;
    for (let tries = 0; tries < maxLooks; tries++) {
      const before = views.outsideStarts;
      const { sessions } = await requireGuest(this.sandbox).listExecs();
      const known = sessions.find((info) => info.id === sessionId);
      if (known !== undefined) return !views.isInside(known);
      if (views.startsOutside(sessionId)) return true;
      if (views.outsideStarts === before) return false;
    }
    throw new GatewayError(503, 'busy', 'Many sessions are being started at this moment. Try again.');
  }

  #viewOf(asked: unknown): GuestView | undefined {
    const { view: own } = this.sandbox.spec;
    if (this.isConfined && own === undefined)
      throw forbidden('The token is for the default view of the sandbox, and it has none.');
    if (asked === undefined || asked === null) return own;
    const issues = checkView(asked).map(({ param, details }) => ({
      param: param === '' ? 'view' : `view.${param}`,
      details,
    }));
    if (issues.length === 0) issues.push(...viewIssues(asked as View, 'view'));
    if (issues.length > 0) {
      const text = issues.map(({ param, details }) => `${param}: ${details}`);
      throw new GatewayError(422, 'bad_request', text.join(' '));
    }
    const view = guestViewOf(asked as View);
    if (this.isConfined && !(view && own && isSameView(view, own)))
      throw forbidden(
        'The token runs commands in the default view of the sandbox only: ask for no other view.',
      );
    return view;
  }
}

/** The answer to an agent that wants more than its view. */
export function forbidden(detail: string): GatewayError {
  return new GatewayError(403, 'outside_view', detail);
}
