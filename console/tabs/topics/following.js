/** Following a topic: reading on from the last position, again and again. No reader and no group is moved. */
import { useShared } from '../../state.js';
import * as node from '../../node.js';
import { read } from '../../statements/topics.js';
import { useCallback, useEffect, useRef, useState } from '../../vendor/preact.js';

const WAIT = '20s';
const MOST = 1000;
const NOTHING = { messages: [], came: 0 };

/**
 * The messages that come behind a position, newest first: the last thousand of them.
 * @param {number} after where it begins
 * @returns {{messages: object[], came: number, error: ?Error, again: () => void}}
 */
export function useFollowed(place, topic, after) {
  const { round } = useShared();
  const [found, put] = useState(NOTHING);
  const [error, fail] = useState(null);
  const [turn, take] = useState(0);
  const last = useRef(after);
  useEffect(() => {
    const over = new AbortController();
    const follow = async () => {
      while (!over.signal.aborted) {
        const statement = read(topic, last.current, { wait: WAIT });
        const messages = await node.run(statement, { place, signal: over.signal });
        if (over.signal.aborted || !messages.length) continue;
        last.current = messages.at(-1).position;
        put((before) => ({
          messages: [...messages.reverse(), ...before.messages].slice(0, MOST),
          came: before.came + messages.length,
        }));
      }
    };
    fail(null);
    follow().catch((thrown) => {
      if (over.signal.aborted) return;
      if (!('code' in thrown)) console.error(thrown);
      fail(thrown);
    });
    return () => over.abort();
  }, [place.ns, place.db, topic, round, turn]);
  return { ...found, error, again: useCallback(() => take((count) => count + 1), []) };
}
