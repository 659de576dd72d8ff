/**
 * Routes of Prime's clients that are not built yet. The control plane answers 501 with a `detail`
 * that names the feature; `SCOPE.md` points here. Building one moves it to `routes.ts`.
 */

/** A route that answers 501. A trailing `*` stands for the rest of the path. */
export interface NotYetRoute {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE' | 'PATCH';
  path: string;
  feature: string;
}

/** Routes that answer 501. */
export const notYetRoutes: readonly NotYetRoute[] = [
  { method: 'POST', path: '/sandbox/{sandbox_id}/expose', feature: 'port exposure' },
  { method: 'GET', path: '/sandbox/{sandbox_id}/expose', feature: 'port exposure' },
  { method: 'GET', path: '/sandbox/expose/all', feature: 'port exposure' },
  { method: 'DELETE', path: '/sandbox/{sandbox_id}/expose/{exposure_id}', feature: 'port exposure' },
  { method: 'POST', path: '/sandbox/{sandbox_id}/ssh-session', feature: 'ssh' },
  { method: 'DELETE', path: '/sandbox/{sandbox_id}/ssh-session/{session_id}', feature: 'ssh' },
  { method: 'GET', path: '/sandbox/volumes', feature: 'volumes' },
  { method: 'POST', path: '/sandbox/volumes', feature: 'volumes' },
  { method: 'GET', path: '/sandbox/volumes/{name}', feature: 'volumes' },
  { method: 'PATCH', path: '/sandbox/volumes/{name}', feature: 'volumes' },
  { method: 'DELETE', path: '/sandbox/volumes/{name}', feature: 'volumes' },
  { method: 'POST', path: '/sandbox/{sandbox_id}/volumes/{name}/publish', feature: 'volumes' },
  { method: 'GET', path: '/sandbox/networks', feature: 'LAN networks' },
  { method: 'POST', path: '/sandbox/networks', feature: 'LAN networks' },
  { method: 'GET', path: '/sandbox/networks/{network_id}', feature: 'LAN networks' },
  { method: 'DELETE', path: '/sandbox/networks/{network_id}', feature: 'LAN networks' },
  { method: 'PUT', path: '/sandbox/networks/{network_id}/rules', feature: 'LAN networks' },
  { method: 'PUT', path: '/sandbox/networks/{network_id}/members/{sandbox_id}', feature: 'LAN networks' },
  { method: 'DELETE', path: '/sandbox/networks/{network_id}/members/{sandbox_id}', feature: 'LAN networks' },
  { method: 'POST', path: '/images/build', feature: 'image builds' },
  { method: 'POST', path: '/images/build/{build_id}/start', feature: 'image builds' },
  { method: 'PATCH', path: '/images', feature: 'image updates' },
  { method: 'POST', path: '/images/*', feature: 'image builds' },
  { method: 'PATCH', path: '/images/*', feature: 'image updates' },
  { method: 'DELETE', path: '/images/*', feature: 'removal of pushed images' },
  { method: 'GET', path: '/template/registry-credentials', feature: 'registry credentials' },
  { method: 'POST', path: '/template/check-docker-image', feature: 'registry checks' },
  { method: 'POST', path: '/tunnel', feature: 'tunnels' },
  { method: 'GET', path: '/tunnel', feature: 'tunnels' },
  { method: 'DELETE', path: '/tunnel', feature: 'tunnels' },
  { method: 'GET', path: '/tunnel/{tunnel_id}', feature: 'tunnels' },
  { method: 'DELETE', path: '/tunnel/{tunnel_id}', feature: 'tunnels' },
  { method: 'POST', path: '/auth_challenge/generate', feature: 'browser login' },
  { method: 'GET', path: '/auth_challenge/status', feature: 'browser login' },
];
