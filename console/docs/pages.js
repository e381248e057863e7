// The search of the pages. It reads each page once, when something is first looked for; what it
// shows are the sections that hold all of the words: those first whose headings have them, then those
// that say what was typed most often.

const input = document.querySelector("#search-box");
const found = document.querySelector("#search-results");
const MOST = 12;

/** @type {Promise<Array<{href: string, page: string, heading: string, text: string}>> | null} */
let sections = null;

const ENTITIES = { "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#x27;": "'", "&amp;": "&" };

/** The text of a piece of our own HTML. It is looked through, and never put into a page as HTML. */
function plain(html) {
  return html
    .replace(/<[^>]*>/g, " ")
    .replace(/&(?:lt|gt|quot|amp|#x27);/g, (entity) => ENTITIES[entity])
    .replace(/\s+/g, " ")
    .trim();
}

async function read(link) {
  const answer = await fetch(link.href);
  if (!answer.ok) throw new Error(`${link.href}: ${answer.status}`);
  const html = await answer.text();
  const body = html.slice(html.indexOf('<main id="page">'), html.indexOf("</main>"));
  return body.split(/(?=<h[123] id=)/).slice(1).map((part) => {
    const [, id, heading] = part.match(/^<h[123] id="([^"]*)">([^]*?)<\/h/);
    const text = plain(part.slice(part.indexOf("</h") + 5));
    return { href: `${link.href}#${id}`, page: link.textContent, heading: plain(heading), text };
  });
}

async function all() {
  const links = [...document.querySelectorAll('nav[aria-label="Pages"] a')];
  return (await Promise.all(links.map(read))).flat();
}

/** How well a section fits; 0 when one of the words does not stand in it. */
function weight({ heading, text, page }, words, phrase) {
  const [title, below] = [heading.toLowerCase(), text.toLowerCase()];
  if (!words.every((word) => title.includes(word) || below.includes(word))) return 0;
  const inTitle = words.filter((word) => title.includes(word)).length / words.length;
  const said = Math.min(below.split(phrase).length - 1, 9);
  return Math.max(1, 1 + 10 * inTitle + said - (page === "Changes" ? 5 : 0));
}

function shown(section, words) {
  const link = document.createElement("a");
  link.href = section.href;
  link.append(section.heading);
  const near = document.createElement("small");
  const text = section.text.toLowerCase();
  const first = text.indexOf(words.join(" "));
  const at = Math.max(0, (first < 0 ? text.indexOf(words[0]) : first) - 40);
  near.textContent = `${section.page} · ${at ? "…" : ""}${section.text.slice(at, at + 120)}`;
  link.append(near);
  return link;
}

function said(text) {
  const line = document.createElement("p");
  line.textContent = text;
  return line;
}

async function search() {
  const asked = input.value;
  const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return found.replaceChildren();
  sections ??= all();
  let every;
  try {
    every = await sections;
  } catch (error) {
    sections = null;
    return found.replaceChildren(said(`The pages can't be read: ${error.message}`));
  }
  if (asked !== input.value) return undefined;
  const phrase = words.join(" ");
  const hits = every
    .map((section) => ({ section, weight: weight(section, words, phrase) }))
    .filter((hit) => hit.weight > 0)
    .sort((one, other) => other.weight - one.weight)
    .map((hit) => hit.section);
  const more = hits.length > MOST ? [said(`and ${hits.length - MOST} more`)] : [];
  const rows = hits.slice(0, MOST).map((section) => shown(section, words));
  return found.replaceChildren(...(rows.length ? rows : [said("No page holds all of these words.")]), ...more);
}

input.addEventListener("input", search);
document.addEventListener("keydown", (event) => {
  const links = [...found.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  if (event.key === "/" && document.activeElement !== input) {
    event.preventDefault();
    input.select();
  } else if (event.key === "Escape") {
    input.value = "";
    found.replaceChildren();
  } else if (event.key === "ArrowDown" && links.length && (at >= 0 || document.activeElement === input)) {
    event.preventDefault();
    links[Math.min(at + 1, links.length - 1)].focus();
  } else if (event.key === "ArrowUp" && at >= 0) {
    event.preventDefault();
    (at ? links[at - 1] : input).focus();
  }
});
