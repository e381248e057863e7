/** Pages of a topic's messages: by position, by time, the newest. Reading moves nobody. */
import * as node from '../../node.js';
import { read, since } from '../../statements/topics.js';

/** Messages of one page. */
export const PAGE = 100;

/** @typedef {{position: number, at: object, key: ?string, id: ?string, headers: object, value: any, bytes: number}} Message */

/**
 * Messages from a position on, oldest first.
 * @returns {Promise<Message[]>}
 */
export const pageFrom = (place, topic, from, { limit = PAGE, ...options } = {}) =>
  node.run(read(topic, Math.max(0, from - 1), { limit }), { place, ...options });

/**
 * The newest messages, oldest first. A read ends at 8 MiB: of large messages there are fewer.
 * @param {number} last position of the topic
 * @returns {Promise<Message[]>}
 */
export async function newest(place, topic, last, options) {
  let found = [];
  for (const back of [PAGE, PAGE / 10, 1]) {
    found = await pageFrom(place, topic, last - back + 1, { limit: 2 * PAGE, ...options }); // some may have come since
    if (!found.length || found.at(-1).position >= last) break;
  }
  return found.slice(-PAGE);
}

/**
 * The position of the first message of a time or later, found by halving: times never fall.
 * @param {number} last position of the topic
 * @param {import('../../values.js').Tagged} time
 * @returns {Promise<number>} one behind the last where there is none
 */
export async function firstSince(place, topic, last, time, options) {
  let [low, high] = [0, last];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const late = await node.run(since(topic, middle, time), { place, ...options });
    if (late === false) low = middle + 1;
    else high = middle;
  }
  return low + 1;
}
