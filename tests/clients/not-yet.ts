/**
 * What published clients can ask and this server does not do yet, by client and name: a feature of a command
 * line, or a live test of a client's own. It answers 501 and names the feature
 * (`packages/protocol/src/not-yet.ts`). Read by the tests of this folder; an entry that works is a failure.
 */

/** One feature, or one upstream test. */
export interface NotYet {
  /** `name version` of the published package. */
  client: string;
  name: string;
  why: string;
}

const ssh = 'ssh is not built';
const ports = 'port exposure is not built';
const lan = 'networks between sandboxes are not built';
const volumes = 'volumes are not built';
const builds = 'image builds and transfers are not built';

/** Live tests of `prime-sandboxes` that begin with `POST /images/build`. */
const imageTests = (client: string): NotYet[] =>
  [
    'test_single_source_transfer_live',
    'test_bulk_source_transfer_partial_failure_live',
    'test_dockerfile_build_full_flow_live',
  ].map((test) => ({ client, name: `test_images_integration_live.py::${test}`, why: builds }));

/** Everything that is not yet. */
export const notYet: NotYet[] = [
  { client: 'prime 0.6.26', name: 'sandbox ssh', why: ssh },
  { client: 'prime 0.6.26', name: 'sandbox expose', why: ports },
  { client: 'prime 0.6.26', name: 'sandbox unexpose', why: ports },
  { client: 'prime 0.6.26', name: 'sandbox list-ports', why: ports },
  { client: 'prime 0.18.0', name: 'sandbox ssh', why: ssh },
  { client: 'prime 0.18.0', name: 'sandbox network create', why: lan },
  { client: 'prime 0.18.0', name: 'sandbox network list', why: lan },
  { client: 'prime 0.18.0', name: 'sandbox network get', why: lan },
  { client: 'prime 0.18.0', name: 'sandbox network delete', why: lan },
  { client: 'prime 0.18.0', name: 'sandbox network add', why: lan },
  { client: 'prime 0.18.0', name: 'sandbox network remove', why: lan },
  { client: 'prime 0.18.0', name: 'sandbox network rules', why: lan },
  { client: 'prime 0.18.0', name: 'sandbox volumes create', why: volumes },
  { client: 'prime 0.18.0', name: 'sandbox volumes list', why: volumes },
  { client: 'prime 0.18.0', name: 'sandbox volumes get', why: volumes },
  { client: 'prime 0.18.0', name: 'sandbox volumes delete', why: volumes },
  { client: 'prime 0.18.0', name: 'sandbox volumes publish', why: volumes },
  { client: 'prime 0.18.0', name: 'sandbox create --volume', why: volumes },
  ...imageTests('prime-sandboxes 0.3.2'),
  ...imageTests('prime-sandboxes 0.5.1'),
];
