/** `@sandlot/sdk/error-table`: the server's tables of errors, apart from the rest because few programs need it. The CLI takes its exit codes from here. */

export { type ErrorCode, type ErrorRow, errorTable, isErrorCode } from '@sandlot/protocol/errors';
export { imageErrorExitCodes, isImageErrorCode } from '@sandlot/protocol/image-errors';
