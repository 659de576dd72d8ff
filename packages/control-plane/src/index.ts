/** What others may use of the control plane: starting it, and its flags. */
export { type ControlPlaneOptions, OptionError, parseOptions } from './options.js';
export { type ControlPlane, type StartHooks, startControlPlane } from './start.js';
