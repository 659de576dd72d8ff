/** Says the flags that the user typed where the API says the names of its fields. Pure; used for failures of `create` and `run --image`. */

const flags: Readonly<Record<string, string>> = {
  docker_image: 'image',
  cpu_cores: '--cpu',
  memory_gb: '--memory',
  disk_size_gb: '--disk',
  timeout_minutes: '--timeout',
  idle_timeout_minutes: '--idle-timeout',
  environment_vars: '--env',
  start_command: 'start command',
  network_allowlist: '--network-allow',
  network_denylist: '--network-deny',
  team_id: '--team',
  secrets: '--secret',
  labels: '--label',
  name: '--name',
  entrypoint: '--entrypoint',
  view: '--view',
  init: '--init',
  checkpoint_id: '--checkpoint',
  restore_memory: '--restore-memory',
};

/** `--cpu` for `cpu_cores`, `--env A` for `environment_vars.A`; a name that is not known comes back as it is. */
export function flagOf(field: string): string {
  const [, first = '', rest = ''] = /^(\w+)(.*)$/s.exec(field) ?? [];
  const flag = flags[first];
  if (flag === undefined) return field;
  // `labels.0`, `labels/0`: the place in the list says more to a program than to a person.
  const name = rest.replace(/^[./]/, '');
  return name === '' || /^\d+$/.test(name) ? flag : `${flag} ${name}`;
}

/** A message with flags for fields: those that are wrong, and whatever can only be the name of a field. */
export function withFlags(message: string, fields: readonly string[]): string {
  let text = message;
  for (const field of fields)
    if (field !== '') text = text.replaceAll(`${field}:`, () => `${flagOf(field)}:`);
  return text.replace(/\b[a-z]+(?:_[a-z]+)+\b/g, (word) => flags[word] ?? word);
}
