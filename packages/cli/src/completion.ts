/** Completion scripts, made from the command tree, so that they never lag behind it. Pure. Used by `completion` and its tests. */
import type { Command } from 'commander';

/** A command as completion sees it. */
export interface CompletionNode {
  /** Words from the program's name on, such as `image pull`; empty for the program. */
  path: string;
  description: string;
  subcommands: { name: string; description: string }[];
  options: { flags: string[]; description: string; takesValue: boolean; choices: readonly string[] }[];
}

/** All commands, the program first. */
export function completionTree(program: Command): CompletionNode[] {
  const nodes: CompletionNode[] = [];
  const walk = (command: Command, path: string[]) => {
    nodes.push({
      path: path.join(' '),
      description: command.description(),
      subcommands: command.commands.map((sub) => ({ name: sub.name(), description: sub.description() })),
      options: [
        ...command.options
          .filter((option) => !option.hidden)
          .map((option) => ({
            flags: [option.short, option.long].filter((flag): flag is string => Boolean(flag)),
            description: option.description,
            takesValue: option.required || option.optional,
            choices: option.argChoices ?? [],
          })),
        { flags: ['-h', '--help'], description: 'show help', takesValue: false, choices: [] },
      ],
    });
    for (const sub of command.commands) walk(sub, [...path, sub.name()]);
  };
  walk(program, []);
  return nodes;
}

/** The script for a shell; undefined for one we do not know. */
export function completionScript(shell: string, program: Command): string | undefined {
  const nodes = completionTree(program);
  switch (shell) {
    case 'bash':
      return bash(nodes);
    case 'zsh':
      return zsh(nodes);
    case 'fish':
      return fish(nodes);
    default:
      return undefined;
  }
}

function bash(nodes: CompletionNode[]): string {
  const cases = nodes.map((node) => {
    const words = [
      ...node.subcommands.map(({ name }) => name),
      ...node.options.flatMap(({ flags }) => flags),
    ];
    return `    ${quote(node.path)}) words=${quote(words.join(' '))} ;;`;
  });
  const paths = nodes
    .filter(({ path }) => path !== '')
    .map(({ path }) => `    ${quote(path)}) path=$next ;;`);
  return `# bash completion for sandlot; made by \`sandlot completion bash\`
_sandlot() {
  local current=\${COMP_WORDS[COMP_CWORD]} path='' next='' words='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ \${COMP_WORDS[i]} == -- ]] && { COMPREPLY=(); return; }
    next="\${path:+$path }\${COMP_WORDS[i]}"
    case $next in
${paths.join('\n')}
    esac
  done
  case $path in
${cases.join('\n')}
  esac
${idCase(nodes, (condition) => `  if [[ $current != -* ]] && ${condition}; then\n    words+=" $(sandlot ls --quiet 2>/dev/null)"\n  fi`)}
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ \${#COMPREPLY[@]} -eq 0 ]] && COMPREPLY=($(compgen -f -- "$current"))
}
complete -o filenames -F _sandlot sandlot
`;
}

/** Commands whose first argument is a sandbox. */
const takeIds = ['run', 'get', 'logs', 'fork', 'pause', 'resume', 'rm', 'upload', 'download'];

function idCase(nodes: CompletionNode[], form: (condition: string) => string): string {
  const paths = nodes
    .map(({ path }) => path)
    .filter((path) => takeIds.includes(path.replace(/^sandbox /, '')));
  return form(`[[ "|${paths.join('|')}|" == *"|$path|"* ]]`);
}

function zsh(nodes: CompletionNode[]): string {
  const cases = nodes.map((node) => {
    const words = [
      ...node.subcommands.map(({ name, description }) => `${name}:${description}`),
      ...node.options.flatMap(({ flags, description }) => flags.map((flag) => `${flag}:${description}`)),
    ];
    const lines = words.map((word) => `        ${quote(escapeColons(word))}`).join('\n');
    return `      ${quote(node.path)})\n        offers=(\n${lines}\n        ) ;;`;
  });
  const paths = nodes
    .filter(({ path }) => path !== '')
    .map(({ path }) => `      ${quote(path)}) at=$next ;;`);
  return `#compdef sandlot
# zsh completion for sandlot; made by \`sandlot completion zsh\`
_sandlot() {
  local at='' next='' word
  local -a typed=("\${(@)words}") offers ids
  for word in \${(@)typed[2,CURRENT-1]}; do
    [[ $word == -- ]] && { _files; return; }
    next="\${at:+$at }$word"
    case $next in
${paths.join('\n')}
    esac
  done
  case $at in
${cases.join('\n')}
  esac
${idCase(nodes, (condition) => `  if ${condition.replace('$path', '$at')}; then\n    ids=(\${(f)"$(sandlot ls --quiet 2>/dev/null)"})\n    compadd -a ids\n  fi`)}
  _describe -t commands sandlot offers
  _files
}
# Found through fpath, this file is the body of the function; sourced, it has to announce it.
if [[ $funcstack[1] == _sandlot ]]; then
  _sandlot "$@"
else
  compdef _sandlot sandlot
fi
`;
}

function fish(nodes: CompletionNode[]): string {
  const lines = [
    '# fish completion for sandlot; made by `sandlot completion fish`',
    'function __sandlot_path',
    '  set -l at',
    "  for word in (commandline -opc)[2..-1]; test $word = -- ; and break; string match -q -- '-*' $word; or set at $at $word; end",
    "  string join ' ' -- $at",
    'end',
    'function __sandlot_at',
    '  set -l here (__sandlot_path)',
    '  test "$here" = "$argv[1]"; or string match -q -- "$argv[1] *" "$here"',
    'end',
    'function __sandlot_exactly',
    '  set -l here (__sandlot_path)',
    '  test "$here" = "$argv[1]"',
    'end',
  ];
  for (const node of nodes) {
    for (const { name, description } of node.subcommands) {
      lines.push(
        `complete -c sandlot -f -n ${quote(`__sandlot_exactly ${quote(node.path)}`)} -a ${quote(name)} -d ${quote(description)}`,
      );
    }
    const condition = `${node.path === '' ? '__sandlot_exactly' : '__sandlot_at'} ${quote(node.path)}`;
    for (const { flags, description, takesValue, choices } of node.options) {
      const named = flags.map((flag) =>
        flag.startsWith('--') ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`,
      );
      const value = takesValue ? (choices.length > 0 ? ` -x -a ${quote(choices.join(' '))}` : ' -r') : '';
      lines.push(
        `complete -c sandlot -n ${quote(condition)} ${named.join(' ')}${value} -d ${quote(description)}`,
      );
    }
    if (takeIds.includes(node.path)) {
      lines.push(
        `complete -c sandlot -n ${quote(`__sandlot_exactly ${quote(node.path)}`)} -a '(sandlot ls --quiet 2>/dev/null)'`,
      );
    }
  }
  return `${lines.join('\n')}\n`;
}

function escapeColons(word: string): string {
  const [name = '', ...rest] = word.split(':');
  return rest.length === 0 ? name : `${name}:${rest.join('\\:')}`;
}

/** For all three shells: single quotes, with a quote inside closed, escaped and opened again. */
function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
