/** `@sandlot/cli`: the command line as a function, for tests and for embedding. */
export { runCli } from './cli.js';
export { type CliContext, processContext } from './context.js';
export { buildProgram } from './program.js';
