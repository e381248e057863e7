/** What is typed at a shell: how this node is started again, and how another joins. */

const port = (address) => /:\d+$/.exec(address)?.[0] ?? '';
const addressOf = (self, surface) => self.surfaces.find((one) => one.surface === surface)?.address ?? '';

/** A word of a shell: quoted where it has to be. */
const word = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll('\'', '\'\\\'\'')}'`);

const command = (words) => words.map((one) => word(String(one))).join(' ');

/** Every address of the machine: a port alone is heard by nobody but this machine. */
const everywhere = (port) => `0.0.0.0${port}`;
const isLoopback = (address) => /^(localhost|127\.|\[::1\])/.test(address);

/** What a node is told besides where it listens, by the names of its settings. */
const FILES = ['cert', 'cert_key', 'key_file', 'backup_dir'];
const OF_ETCD = ['etcd_ca', 'etcd_cert', 'etcd_key', 'etcd_login'];

/** How much it keeps and says, and what is usual: what is left out is that. */
const USUAL = { keep_log: null, keep_statements: 100_000, unseal_for: '10m', slow: '1s', log_level: 'info' };

/** Settings as flags, those that were given: 0 is one. */
const flags = (settings, names) => names.filter((name) => (settings[name] ?? '') !== '').flatMap((name) => [`--${name.replaceAll('_', '-')}`, settings[name]]);

const unusual = (settings) => Object.keys(USUAL).filter((name) => String(settings[name]) !== String(USUAL[name]));

/** How this node is started so that others reach it. @param {object} self INFO FOR NODE */
export const reachable = ({ settings }) => command([
  'storenode', settings.directory, ...flags(settings, ['http', 'serve', ...FILES, ...OF_ETCD, ...unusual(settings)]),
  '--peer', everywhere(':8002'),
]);

/**
 * How a node joins: it serves what this node serves, on the ports that its row says, where they are as this node's own, and
 * with the files that all nodes have.
 * @param {object} row @param {object} self INFO FOR NODE @param {string} token
 */
export function joining(row, self, token) {
  const serving = (flag, surface, usual) => {
    const own = addressOf(self, surface);
    if (!own) return [];
    const there = row.endpoints.some((one) => port(one) === port(own)) ? port(own) : usual;
    return [flag, isLoopback(own) ? there : everywhere(there)];
  };
  return `STORE_JOIN_TOKEN=${word(token)} \\\n  ${command([
    'storenode', '/var/lib/store', ...serving('--http', 'http', ':8000'), ...serving('--serve', 'wire', ':8001'), '--peer', everywhere(port(row.peer)),
    ...flags(self.settings, ['cert', 'cert_key', 'key_file', ...OF_ETCD]),
  ])}`;
}
