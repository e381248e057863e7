/**
 * The text of GET /metrics (Prometheus), what one reading of it comes to, and what happened between two.
 *
 * @typedef {Map<string, {labels: Object<string, string>, value: number}[]>} Series by name
 * @typedef {object} Reading
 * @property {number} at seconds since 1970
 * @property {number} requests answers given @property {number} refused those of 4xx and 5xx
 * @property {[number, number][]} buckets of all routes: seconds, and how many answers took no longer
 * @property {number} commits newest sequence @property {number} cpu seconds @property {number} memory bytes
 * @property {number} files open descriptors @property {number} filesMost
 * @property {number} connections @property {number} sockets @property {number} running
 */

const LINE = /^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$/;
const LABEL = /([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPED = { '\\\\': '\\', '\\"': '"', '\\n': '\n' };

/** @param {string} text @returns {Series} lines that are no series are passed over */
export function parse(text) {
  const found = new Map();
  for (const line of text.split('\n')) {
    const [, name, labels = '', value] = (line[0] !== '#' && LINE.exec(line)) || [];
    if (!name) continue;
    if (!found.has(name)) found.set(name, []);
    found.get(name).push({ labels: labelled(labels), value: numbered(value) });
  }
  return found;
}

const numbered = (text) => Number(text.replace(/^([+-]?)Inf$/, '$1Infinity'));
const labelled = (text) => Object.fromEntries([...text.matchAll(LABEL)].map(([, name, value]) =>
  [name, value.replace(/\\[\\"n]/g, (sign) => ESCAPED[sign])]));

/** The sum of a series over all its labels, or over those that `keep`s. */
export const sum = (series, name, keep = () => true) =>
  (series.get(name) ?? []).reduce((all, { labels, value }) => (keep(labels) ? all + value : all), 0);

/** What one reading comes to. @param {Series} series @param {number} at @returns {Reading} */
export function read(series, at) {
  const buckets = new Map();
  for (const { labels, value } of series.get('store_http_request_seconds_bucket') ?? []) {
    const most = numbered(labels.le);
    buckets.set(most, (buckets.get(most) ?? 0) + value);
  }
  return {
    at,
    requests: sum(series, 'store_http_requests_total'),
    refused: sum(series, 'store_http_requests_total', ({ status }) => Number(status) >= 400),
    buckets: [...buckets].sort(([one], [two]) => one - two),
    commits: sum(series, 'store_sequence'),
    cpu: sum(series, 'process_cpu_seconds_total'),
    memory: sum(series, 'process_resident_memory_bytes'),
    files: sum(series, 'process_open_fds'),
    filesMost: sum(series, 'process_max_fds'),
    connections: sum(series, 'store_http_connections'),
    sockets: sum(series, 'store_http_sockets'),
    running: sum(series, 'store_http_running'),
  };
}

/**
 * The time that so large a part of some answers took no longer than, straight between the bounds of its bucket.
 * @param {number} part 0.95 @param {[number, number][]} buckets cumulative, the last one of all
 * @returns {?number} seconds; null: there were none
 */
export function quantile(part, buckets) {
  const all = buckets.length ? buckets[buckets.length - 1][1] : 0;
  if (!all) return null;
  let [below, counted] = [0, 0];
  for (const [most, count] of buckets) {
    if (count >= part * all) {
      if (!Number.isFinite(most)) return below;
      return count === counted ? most : below + (most - below) * (part * all - counted) / (count - counted);
    }
    [below, counted] = [most, count];
  }
  return below;
}

/**
 * What happened between two readings, a second; null where the node began anew between them.
 * @param {Reading} before @param {Reading} after
 */
export function between(before, after) {
  const seconds = after.at - before.at;
  if (seconds <= 0 || after.requests < before.requests || after.cpu < before.cpu) return null;
  const was = new Map(before.buckets);
  const buckets = after.buckets.map(([most, count]) => [most, count - (was.get(most) ?? 0)]);
  const rate = (name) => (after[name] - before[name]) / seconds;
  return {
    requests: rate('requests'), refused: rate('refused'), commits: rate('commits'), cpu: rate('cpu'),
    p50: quantile(0.5, buckets), p95: quantile(0.95, buckets), p99: quantile(0.99, buckets),
  };
}
