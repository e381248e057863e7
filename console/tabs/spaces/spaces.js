/** The cache spaces of a place, and one of them: within Run's places, at `#/run/<ns>/<db>/space/<space>`. */
import { placed } from '../../address.js';
import { Head } from '../../components/head.js';
import { Answer, Empty, Notice } from '../../components/notices.js';
import { Table } from '../../components/table.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { info, isName } from '../../statements.js';
import { html } from '../../vendor/preact.js';
import { Space } from './space.js';

/** What the head of these views says. */
export const ABOUT = {
  title: 'Cache spaces', page: 'cache.md', about: 'Keys with values, which may expire, and locks.',
};

/** The address of a space, or of a key in it. */
export const at = (place, space, query) => placed('run', place, space === undefined ? ['space'] : ['space', space], query);

const COLUMNS = (place) => [
  {
    name: 'space', title: 'Space', value: ({ name }) => name, text: ({ name }) => name,
    cell: ({ name }) => html`<a href=${at(place, name)}><bdi>${name}</bdi></a>`,
  },
  {
    name: 'expire', title: 'Default expiry', width: '24ch',
    cell: ({ expire }) => (expire ? expire.text : 'none'),
  },
  { name: 'comment', title: 'Comment', width: '40ch', cell: ({ comment }) => html`<bdi>${comment ?? ''}</bdi>` },
];

/** @param {{place: {ns: string, db: string}, name?: string, query: object}} props `name`: of a space, or all of them */
export function Spaces({ place, name, query }) {
  if (name === undefined) return html`<${All} place=${place} />`;
  if (!isName(name)) {
    return html`<${Head} tab=${ABOUT} />
      <${Notice} look="gone" title="Not found"><p><bdi>${name}</bdi> is not a name of a space.</p><//>`;
  }
  return html`<${Space} key=${`${place.ns}.${place.db}.${name}`} place=${place} space=${name} query=${query} />`;
}

function All({ place }) {
  const asked = useQuery((signal) => node.run(info.database(place), { place, signal }), [place.ns, place.db]);
  return html`
    <${Head} tab=${ABOUT} asked=${asked} />
    <${Answer} asked=${asked} what="spaces">
      ${({ spaces }) => (spaces.length === 0 ? html`<${Empty} title="No cache spaces here">
          <p><code>DEFINE SPACE sessions EXPIRE 30m</code> creates one.</p><//>`
        : html`<${Table} label="Cache spaces" columns=${COLUMNS(place)} rows=${spaces} height="70vh" />`)}
    <//>`;
}
