"""The console's own copy of the pages: whole, and linked among themselves only."""

from __future__ import annotations

import importlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

HTML = importlib.import_module("docs.html")
PAGES: dict[str, str] = HTML.pages()


class Read(HTMLParser):
    """What a page links to, what can be linked to in it, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: list[str] = []
        self.loads: list[str] = []
        self.inline = 0
        self.open = 0
        """Links that are open; more than one where a link stands in another."""
        self.nested = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.inline += "style" in found or any(name.startswith("on") for name in found)
        if tag == "a":
            self.open += 1
            self.nested += self.open > 1
            self.links.append(found["href"])
        elif tag in ("script", "link", "img", "iframe"):
            self.loads.append(found.get("src") or found.get("href") or "inline")
        if "id" in found:
            self.anchors.append(found["id"])

    def handle_endtag(self, tag: str) -> None:
        self.open -= tag == "a"


def dead(pages: dict[str, str]) -> list[str]:
    read = {name: Read(text) for name, text in pages.items()}
    found = []
    for name, page in read.items():
        for link in page.links:
            to, _, anchor = link.partition("#")
            if to == "/" or to.startswith(("https://", "http://")):
                continue
            target = read.get(to or name)
            if target is None or (anchor and anchor not in target.anchors):
                found.append(f"{name}: {link}")
    return found


def test_what_has_changed_is_written_and_nothing_else(tmp_path: Path) -> None:
    HTML.write(tmp_path)
    unchanged = (tmp_path / "wire.html").stat().st_ino
    (tmp_path / "topics.html").write_text(PAGES["topics.html"].replace("queue", "list"), "utf-8")
    (tmp_path / "gone.html").write_text("of a page that is no more")
    (tmp_path / "pages.css").touch()
    (tmp_path / "http.html").unlink()
    HTML.write(tmp_path)
    (tmp_path / "pages.css").unlink()
    there = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert there == PAGES
    assert (tmp_path / "wire.html").stat().st_ino == unchanged


def test_each_link_leads_somewhere() -> None:
    assert dead(PAGES) == []


def test_a_link_to_what_is_not_served_leaves_those_beside_it_whole() -> None:
    page = "docs/page.md"
    text = "# P\n\n[a](page.md), [b](gone.md), [c](page.md)\n"
    source = HTML.Source(page, "page", "P", text)
    made = HTML._page(source, [source], {page: source})
    assert '<p><a href="page.html">a</a>, b, <a href="page.html">c</a></p>' in made


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_what_stands_beside_it_and_has_nothing_inline(name: str) -> None:
    read = Read(PAGES[name])
    assert set(read.loads) == {"pages.css", "pages.js"}
    assert read.inline == 0
    assert (read.open, read.nested) == (0, 0)
    assert len(read.anchors) == len(set(read.anchors))


@pytest.mark.parametrize("name", PAGES)
def test_no_mark_of_the_sources_is_left(name: str) -> None:
    body = re.sub(
        r"<(pre|code)\b.*?</\1>", "", PAGES[name].partition('<main id="page">')[2], flags=re.S
    )
    assert not re.search(r"\*\*|\]\(|&lt;!--", body)


def test_anchors_are_those_that_the_sources_are_read_by() -> None:
    taken: dict[str, Any] = {}
    made = [HTML.slug(text, taken) for text in ("GET /backup", "Roles", "What's `x`?", "Roles")]
    assert made == ["get-backup", "roles", "whats-x", "roles-1"]
