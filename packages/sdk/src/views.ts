/** Views as programs write them, and their form on the wire. Used by create and exec. */
import type { View as WireView } from '@sandlot/protocol';

/** What a command sees of its machine. What it holds, and what it does not: `docs/views.md`. */
export interface View {
  /**
   * `sealed` (the default): root inside has no way back. `mask`: hides from honest programs and from users that are
   * not root; root can undo it. `none`: outside of any view, with nothing else here.
   */
  strength?: 'sealed' | 'mask' | 'none' | undefined;
  /** Absolute paths that are empty in it. They must exist. */
  hide?: readonly string[] | undefined;
  /** Absolute paths that cannot be written in it. They must exist. */
  readonly?: readonly string[] | undefined;
  /** A `/tmp` of its own. */
  privateTmp?: boolean | undefined;
  /** `own`: a network of its own behind the machine's. `none`: none. `machine`: the machine's. */
  network?: 'own' | 'none' | 'machine' | undefined;
}

/** The form of the wire. */
export function wireView({ strength, hide, readonly, privateTmp, network }: View): WireView {
  return {
    ...(strength === undefined ? {} : { strength }),
    ...(hide === undefined ? {} : { hide: [...hide] }),
    ...(readonly === undefined ? {} : { readonly: [...readonly] }),
    ...(privateTmp === undefined ? {} : { private_tmp: privateTmp }),
    ...(network === undefined ? {} : { network }),
  };
}
