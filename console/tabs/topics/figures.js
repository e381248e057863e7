/**
 * What the node tells of topics: INFO where the caller has INFO, /metrics of what it may read, and the names of
 * what is granted to it. What was told before is kept in the page, for plots.
 *
 * @typedef {object} Consumer
 * @property {'reader'|'group'} is
 * @property {string} name
 * @property {number} lag
 * @property {object} told of a reader `{position}`, of a group what INFO FOR GROUP or /metrics says
 *
 * @typedef {object} Figures of one topic; what is not known is undefined
 * @property {string} name
 * @property {number} [messages]
 * @property {number} [last]
 * @property {number} [lag] of the consumer that is furthest behind; 0 without any
 * @property {Consumer[]} [consumers]
 * @property {object} [settings] what INFO says, where the caller has INFO
 */
import * as node from '../../node.js';
import { forgotten } from '../../state.js';
import { info } from '../../statements.js';

const SAMPLES = 120;
/** More topics than these, and their settings are asked for less often than their figures. */
export const MANY = 1_000;
const SETTINGS_MS = 60_000;

/** @typedef {{times: number[], last: number[], lag: number[]}} Past seconds since 1970, positions, lags */

/** @type {Map<string, Past>} */
const pasts = new Map();
forgotten(() => pasts.clear());
const NEVER = { times: [], last: [], lag: [] };

const whole = (place, topic) => `${place.ns}.${place.db}.${topic}`;

/** What a consumer's figures are remembered under. */
export const remembered = (topic, { is, name }) => `${topic}/${is}/${name}`;

/** What is remembered of a topic. @returns {Past} */
export const past = (place, topic) => pasts.get(whole(place, topic)) ?? NEVER;

/** Remember what was told. Of three samples that are alike the middle one is dropped: a line has two ends. */
export function remember(place, topic, { last, lag }, now = Date.now() / 1000) {
  if (last === undefined) return;
  const key = whole(place, topic);
  const kept = pasts.get(key) ?? { times: [], last: [], lag: [] };
  const at = kept.times.length;
  const alike = (index) => kept.last[index] === last && kept.lag[index] === (lag ?? 0);
  if (at > 0 && last < kept.last[at - 1]) return void pasts.delete(key); // another topic has its name now
  if (at > 1 && alike(at - 1) && alike(at - 2)) {
    kept.times[at - 1] = now;
    return;
  }
  kept.times.push(now);
  kept.last.push(last);
  kept.lag.push(lag ?? 0);
  if (at === SAMPLES) Object.values(kept).forEach((series) => series.shift());
  pasts.set(key, kept);
}

/** Messages a second between each sample and the one before it; null for the first. @param {Past} kept */
export const rates = ({ times, last }) => last.map((position, at) =>
  (at ? (position - last[at - 1]) / Math.max(times[at] - times[at - 1], 0.001) : null));

/** Messages a second, by the newest two samples; undefined before there are two. @param {Past} kept */
export const rate = (kept) => (kept.times.length > 1 ? rates(kept).at(-1) : undefined);

const SERIES = /^store_topic_(\w+)\{namespace="([^"]*)",database="([^"]*)",topic="([^"]*)"(?:,(\w+)="([^"]*)")?\} (\d+)$/gm;
const OF_GROUPS = {
  group_lag: 'lag', group_pending: 'pending', group_waiting: 'waiting', group_in_flight: 'in_flight',
  group_redelivered_total: 'redelivered', group_dead_lettered_total: 'dead_lettered',
};

/**
 * The figures of one place's topics in the text of /metrics.
 * @param {string} text @param {{ns: string, db: string}} place
 * @returns {Map<string, Figures>} by name
 */
export function measured(text, place) {
  const found = new Map();
  const consumer = (topic, is, name) => {
    let one = topic.consumers.find((other) => other.is === is && other.name === name);
    if (!one) topic.consumers.push((one = { is, name, lag: 0, told: { name } }));
    return one;
  };
  for (const [, series, ns, db, name, label, of, figure] of text.matchAll(SERIES)) {
    if (ns !== place.ns || db !== place.db) continue;
    let topic = found.get(name);
    if (!topic) found.set(name, (topic = { name, lag: 0, consumers: [] }));
    const number = Number(figure);
    if (series === 'messages') topic.messages = number;
    else if (series === 'last_position') topic.last = number;
    else if (label) {
      const one = consumer(topic, label === 'group' ? 'group' : 'reader', of);
      if (series.endsWith('_lag')) one.lag = number;
      if (OF_GROUPS[series]) one.told[OF_GROUPS[series]] = number;
      topic.lag = Math.max(topic.lag, one.lag);
    }
  }
  return found;
}

/** The figures that INFO FOR TOPIC tells. @returns {Figures} */
export const described = (told) => ({
  name: told.name, messages: told.messages, last: told.last_position, lag: told.lag, settings: told,
  consumers: [
    ...told.readers.map((one) => ({ is: 'reader', name: one.name, lag: one.lag, told: one })),
    ...told.groups.map((one) => ({ is: 'group', name: one.name, lag: one.lag, told: one })),
  ],
});

const metrics = async (signal) => (await node.request('GET', '/metrics', { raw: true, signal })).text();

async function granted(place, signal) {
  const grants = await node.run(info.grants(), { place, signal });
  const noun = `TOPIC ${place.ns}.${place.db}.`;
  return grants.map(({ on }) => on).filter((on) => on.startsWith(noun)).map((on) => on.slice(noun.length));
}

/**
 * Asks for what a caller may know, and remembers what was refused: a refusal is kept in the statement log, so it
 * is not provoked again every few seconds.
 */
export class Asking {
  /** @param {{ns: string, db: string}} place */
  constructor(place) {
    this.place = place;
    /** @type {?node.Refusal} */
    this.refused = null;
    /** What INFO said of a place with many topics, and when. */
    this.kept = { topics: null, at: 0 };
  }

  /** Ask for everything anew at the next time. */
  forget() {
    this.refused = null;
    this.kept = { topics: null, at: 0 };
  }

  /** What a statement tells; null where INFO is not granted. */
  async #told(statement, signal) {
    if (this.refused) return null;
    try {
      return await node.run(statement, { place: this.place, signal });
    } catch (error) {
      if (error.code !== 'NotAllowed') throw error;
      this.refused = error;
      return null;
    }
  }

  /** What INFO says of each topic; null where it is not granted. */
  async #settings(signal) {
    if (this.kept.topics && Date.now() - this.kept.at < SETTINGS_MS) return this.kept.topics;
    const topics = (await this.#told(info.database(this.place), signal))?.topics ?? null;
    if (topics?.length > MANY) this.kept = { topics, at: Date.now() };
    return topics;
  }

  /**
   * All topics of the place.
   * @returns {Promise<{topics: Map<string, Figures>, refused: ?Error}>}
   */
  async all(signal) {
    const [told, text] = await Promise.all([this.#settings(signal), metrics(signal)]);
    const topics = measured(text, this.place);
    const settings = told ?? (await granted(this.place, signal)).map((name) => ({ name }));
    for (const one of settings) {
      const known = topics.get(one.name) ?? { name: one.name, messages: one.messages, last: one.last_position };
      topics.set(one.name, told ? { ...known, settings: one } : known);
    }
    for (const topic of topics.values()) remember(this.place, topic.name, topic);
    return { topics, refused: this.refused };
  }

  /**
   * One topic. Where INFO is not granted and it can't be read either, its name is all that is known.
   * @returns {Promise<{topic: Figures, refused: ?Error}>}
   */
  async one(name, signal) {
    const told = await this.#told(info.topic(name), signal);
    const topic = told ? described(told) : measured(await metrics(signal), this.place).get(name) ?? { name };
    remember(this.place, name, topic);
    for (const one of topic.consumers ?? []) {
      remember(this.place, remembered(name, one), { last: one.told.position ?? one.told.committed, lag: one.lag });
    }
    return { topic, refused: this.refused };
  }
}
