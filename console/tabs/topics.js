/** Topics: what messages there are, who is behind, and what one does about it. */
import { Head } from '../components/head.js';
import { Empty, Notice } from '../components/notices.js';
import { isName } from '../statements.js';
import { html } from '../vendor/preact.js';
import { List } from './topics/list.js';
import { Topic } from './topics/topic.js';

function Topics({ tab, place, parts, query }) {
  if (!place) {
    return html`<${Head} tab=${tab} />
      <${Empty} title="No database is chosen"><p>Topics live in a database: choose one at the top.</p><//>`;
  }
  const key = `${place.ns}.${place.db}`;
  if (!parts.length) return html`<${List} key=${key} tab=${tab} place=${place} />`;
  const [topic] = parts;
  if (!isName(topic)) {
    return html`<${Head} tab=${tab} />
      <${Notice} look="gone" title="Not found"><p><bdi>${topic}</bdi> is not a name of a topic.</p><//>`;
  }
  return html`<${Topic} key=${`${key}.${topic}`} tab=${tab} place=${place} name=${topic} query=${query} />`;
}

export const view = Topics;
