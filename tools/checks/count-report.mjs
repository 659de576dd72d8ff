// Prints `passed failed skipped` of a vitest JSON report. Called by tools/test.sh with the report and
// vitest's exit status: a run that failed without a failed test still counts as one failure.
import { readFileSync } from 'node:fs';

const [file, status] = process.argv.slice(2);
const report = JSON.parse(readFileSync(file, 'utf8'));
const brokenFiles = report.testResults.filter(
  (result) => result.status === 'failed' && result.assertionResults.length === 0,
);
let failed = report.numFailedTests + brokenFiles.length;
if (status !== '0' && failed === 0) failed = 1;
console.log(report.numPassedTests, failed, report.numPendingTests + report.numTodoTests);
