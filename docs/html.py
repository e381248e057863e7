"""`python -m docs.html`: write the pages of docs/ as the console shows them into `console/docs/`.

They are HTML that stands among the console's files, with the list of all pages, what is on this
one, and a search that runs in the browser. Git has none of them: a build of the wheel and the
install of a checkout write them (`compiling/wheel.py`), and so does `make run` after a change.

A page for those who work on the node (`LEFT_OUT`, the decisions) is not made; a link to it, or to a
file of the sources, stays as text, since nothing of it is served. Nor are pictures: they are of the
console itself.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Final

# Of what is not in the standard library this alone: the node's own environment has it, by rich.
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "console" / "docs"
"""Folder of the written pages, among the files that the node serves."""
LEFT_OUT: Final = frozenset({"docs/contributing.md", "docs/dependencies.md", "docs/benchmarks.md"})
ELSEWHERE: Final = {
    "README.md": ("start", "First steps"),
    "clients/python/README.md": ("python", "The Python client"),
    "clients/go/README.md": ("go", "The Go client"),
    "clients/typescript/README.md": ("typescript", "The TypeScript client"),
    "clients/rust/README.md": ("rust", "The Rust client"),
    "clients/kotlin/README.md": ("kotlin", "The Kotlin client"),
    "examples/shop/README.md": ("example-shop", "Example: a shop"),
    "examples/cluster/README.md": ("example-cluster", "Example: counting in a cluster"),
    "examples/feeds/README.md": ("example-feeds", "Example: following tables"),
    "examples/search/README.md": ("example-search", "Example: a search page"),
    "CHANGELOG.md": ("changelog", "Changes"),
}
"""Pages that do not stand in docs/: their names and titles among the others."""

ROW: Final = re.compile(r"^\| (\[[^]]+\]\([^)#]+\)(?:, \[[^]]+\]\([^)#]+\))*) \|", re.MULTILINE)
"""Row of a table whose first cell has nothing but links to pages: that cell."""
TARGET: Final = re.compile(r"\]\(([^)]+)\)")

SHELL: Final = """\
<!doctype html>
<!-- Made by `make docs` of {source}. Change that, not this page. -->
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · storenode</title>
<link rel="stylesheet" href="pages.css">
<script type="module" src="pages.js"></script>
</head>
<body>
<a class="skip" href="#page">To the page</a>
<header>
<a class="home" href="/">storenode</a>
<search><input id="search-box" type="search" placeholder="Search these pages" \
aria-label="Search these pages" autocomplete="off" spellcheck="false">
<output id="search-results" for="search-box"></output></search>
</header>
<nav aria-label="Pages">
{pages}
</nav>
<main id="page">
{body}
</main>
<nav aria-label="On this page">
{parts}
</nav>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Source:
    """A page as it is written: its path in the repository, what it is called among those made, and
    its Markdown."""

    path: str
    name: str
    title: str
    text: str


def sources() -> list[Source]:
    """What pages are made of: those of the index first, in its order."""
    inside = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))
    there = [path for path in inside if path not in LEFT_OUT] + list(ELSEWHERE)
    index = (ROOT / "docs/index.md").read_text("utf-8")
    listed = [
        _joined("docs/index.md", target)
        for cell in ROW.findall(index)
        for target in TARGET.findall(cell)
    ]
    ranks = {path: rank for rank, path in enumerate(["docs/index.md", *listed])}
    there.sort(key=lambda path: (ranks.get(path, len(ranks)), path))
    return [_source(path) for path in there]


def pages() -> dict[str, str]:
    """Every page, by its path below `console/docs/`."""
    every = sources()
    by_path = {source.path: source for source in every}
    return {f"{source.name}.html": _page(source, every, by_path) for source in every}


def write(folder: Path = FOLDER) -> None:
    """Write the pages that differ into a folder, and remove those without a source.

    Each is replaced in one step: nodes and builds of wheels may read the folder at the same time.
    """
    made = pages()
    for path in folder.glob("*.html"):
        if path.name not in made:
            path.unlink(missing_ok=True)
    for name, text in made.items():
        path = folder / name
        if not path.is_file() or path.read_text("utf-8") != text:
            fresh = folder / f"{name}.{os.getpid()}"
            fresh.write_text(text, "utf-8")
            fresh.replace(path)
    (folder / "index.html").touch()  # newer than its sources, also where it has not changed


def slug(heading: str, taken: dict[str, int]) -> str:
    """The anchor of a heading, as the sites that show Markdown make it; the second of one name has
    a number behind it. `taken` counts them."""
    word = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    again = taken.get(word, -1) + 1
    taken[word] = again
    return f"{word}-{again}" if again else word


def _source(path: str) -> Source:
    text = re.sub(r"^<!--.*?-->\s*", "", (ROOT / path).read_text("utf-8"), flags=re.DOTALL)
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    assert heading is not None, path
    own = (path.removeprefix("docs/").removesuffix(".md"), heading[1].replace("`", ""))
    name, title = ELSEWHERE.get(path, own)
    return Source(path, name, title, text)


def _joined(page: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def _page(source: Source, every: Sequence[Source], by_path: dict[str, Source]) -> str:
    markdown = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    tokens = markdown.parse(_without_rows(source, by_path))
    parts = _anchored(tokens)
    _linked(tokens, source, by_path)
    body = markdown.renderer.render(tokens, markdown.options, {})
    body = body.replace("<p></p>\n", "")  # there was a picture
    for wide in ("table", "pre"):  # what is wider than the page scrolls by itself, by keys too
        body = body.replace(f"<{wide}>", f'<div class="wide" tabindex="0"><{wide}>')
        body = body.replace(f"</{wide}>", f"</{wide}></div>")
    return SHELL.format(
        source=source.path,
        title=escape(source.title),
        pages=_list((f"{each.name}.html", each.title, each is source) for each in every),
        body=body.rstrip(),
        parts=_list((f"#{anchor}", text, False) for anchor, text in parts),
    )


def _without_rows(source: Source, by_path: dict[str, Source]) -> str:
    """Return its Markdown without the table rows that are only about pages which are not made."""
    return "".join(
        line
        for line in source.text.splitlines(keepends=True)
        if not (row := ROW.match(line))
        or any(_joined(source.path, target) in by_path for target in TARGET.findall(row[1]))
    )


def _anchored(tokens: list[Token]) -> list[tuple[str, str]]:
    """Give each heading its anchor. Those of the second level, with their texts."""
    found, taken = [], dict[str, int]()
    for token, inline in pairwise(tokens):
        if token.type == "heading_open":
            text = "".join(child.content for child in inline.children or ())
            token.attrSet("id", slug(text, taken))
            if token.tag == "h2":
                found.append((str(token.attrGet("id")), text))
    return found


def _linked(tokens: list[Token], source: Source, by_path: dict[str, Source]) -> None:
    """Turn links between the sources into links between the pages, where they name a file by the
    title of its page; leave out what is not served."""
    for token in tokens:
        children, kept, dropped = token.children or [], list[Token](), False
        for child, text in zip_longest(children, children[1:]):
            if child.type == "link_open":
                href = str(child.attrGet("href"))
                path, hash_, anchor = href.partition("#")
                page = by_path.get(_joined(source.path, path)) if path else source
                dropped = page is None and not href.startswith(("https://", "http://"))
                if page is not None:
                    child.attrSet("href", f"{page.name}.html{hash_}{anchor}")
                    if text.content.endswith(".md"):
                        text.content = page.title
            if child.type != "image" and not (
                dropped and child.type in ("link_open", "link_close")
            ):
                kept.append(child)
        token.children = kept


def _list(links: Iterable[tuple[str, str, bool]]) -> str:
    """Links as a list: where each leads, what it says, whether that is the page it stands on."""
    rows = [
        f'<li><a href="{escape(href)}"{" aria-current=page" * here}>{escape(text)}</a></li>'
        for href, text, here in links
    ]
    return "<ul>\n" + "\n".join(rows) + "\n</ul>" if rows else ""


if __name__ == "__main__":
    write()
