/** What is typed at a shell: how this node is started again, and how another joins. */

const port = (address) => /:\d+$/.exec(address)?.[0] ?? '';
const addressOf = (self, surface) => self.surfaces.find((one) => one.surface === surface)?.address ?? '';

/** A word of a shell: quoted where it has to be. */
const word = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll('\'', '\'\\\'\'')}'`);

const command = (words) => words.filter(Boolean).map(word).join(' ');

/** What a node is told besides where it listens, by the names of its settings. */
const FILES = ['cert', 'cert_key', 'key_file', 'backup_dir'];
const OF_ETCD = ['etcd_ca', 'etcd_cert', 'etcd_key', 'etcd_login'];

/** Settings as flags, those that were given. */
const flags = (settings, names) => names.filter((name) => settings[name]).flatMap((name) => [`--${name.replaceAll('_', '-')}`, settings[name]]);

/** How this node is started so that others reach it. @param {object} self INFO FOR NODE */
export const reachable = ({ settings }) => command([
  'storenode', settings.directory, ...flags(settings, ['http', 'serve', ...FILES, ...OF_ETCD]), '--peer', ':8002',
]);

/**
 * How a node joins: on the ports that its row says, where they are as this node's own, and with the files that all nodes have.
 * @param {object} row @param {object} self INFO FOR NODE @param {string} token
 */
export function joining(row, self, token) {
  const like = (surface, usual) => {
    const own = port(addressOf(self, surface));
    return row.endpoints.some((one) => port(one) === own) ? own : usual;
  };
  return `STORE_JOIN_TOKEN=${word(token)} \\\n  ${command([
    'storenode', '/var/lib/store', '--http', like('http', ':8000'), '--serve', like('wire', ':8001'), '--peer', port(row.peer),
    ...flags(self.settings, ['cert', 'cert_key', 'key_file', ...OF_ETCD]),
  ])}`;
}
