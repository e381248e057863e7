/** What is typed at a shell: how this node is started again, and how another joins. */

const port = (address) => /:\d+$/.exec(address)?.[0] ?? '';
const addressOf = (self, surface) => self.surfaces.find((one) => one.surface === surface)?.address ?? '';

/** A word of a shell: quoted where it has to be. */
const word = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll('\'', '\'\\\'\'')}'`);

const command = (words) => words.filter(Boolean).map(word).join(' ');

/** A flag with its address; nothing where there is none. */
const flag = (name, address) => (address ? [`--${name}`, address] : []);

/** How this node is started so that others reach it. @param {object} self INFO FOR NODE */
export const reachable = ({ settings }) => command([
  'storenode', settings.directory, ...flag('http', settings.http), ...flag('serve', settings.serve), ...flag('cert', settings.cert),
  ...flag('cert-key', settings.cert_key), ...flag('key-file', settings.key_file), ...flag('backup-dir', settings.backup_dir), '--peer', ':8002',
]);

/**
 * How a node joins: with the addresses that its row says, where one of them is as this node's own.
 * @param {object} row @param {object} self INFO FOR NODE @param {string} token
 */
export function joining(row, self, token) {
  const like = (surface, usual) => {
    const own = port(addressOf(self, surface));
    return row.endpoints.some((one) => port(one) === own) ? own : usual;
  };
  return `STORE_JOIN_TOKEN=${word(token)} \\\n  ${command([
    'storenode', '/var/lib/store', '--http', like('http', ':8000'), '--serve', like('wire', ':8001'), '--peer', port(row.peer),
    ...(self.settings.key_file ? ['--key-file', self.settings.key_file] : []),
  ])}`;
}
