"""The files of the console: their size, their imports, what comes from others, and which routes
they ask."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from language.keywords import STATEMENTS
from protocol import limits
from surfaces.http import console
from surfaces.http.routes import ROUTES

ROOT = Path(__file__).parents[2]
MOST_BYTES = 400 * 1024
MOST_LINES = 400
SCRIPTS = {
    name: file.body.decode()
    for name, file in console.FILES.items()
    if name.endswith(".js") and not name.startswith(("vendor/", "docs/"))
}
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|document\.cookie"
)
IMPORT = re.compile(r"^(?:import|export)[^;'=]*'([^']+)';|\bimport\('([^']+)'\)", re.MULTILINE)


def checked(folder: Path) -> list[str]:
    """Where vendored files and what is said of them part."""
    told = json.loads((folder / "VENDOR.json").read_text())
    found = []
    for name, about in told.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != about["sha256"]:
            found.append(f"{name} has another checksum")
        for package in about["packages"]:
            if not package["license"] or not (folder / package["text"]).read_text().strip():
                found.append(f"{package['name']} has no licence")
    there = {path.name for path in folder.iterdir() if path.suffix in (".js", ".css")}
    return found + [f"{name} is not told of" for name in sorted(there - told.keys())]


@pytest.mark.parametrize("folder", ["console/vendor", "tests/console/vendor"])
def test_what_is_vendored_is_what_was_fetched(folder: str) -> None:
    assert checked(ROOT / folder) == []


def test_a_reason_is_as_long_as_a_node_takes_it() -> None:
    fields = [
        field
        for script in SCRIPTS.values()
        for field in re.findall(r'label="Reason".*?/>', script, re.DOTALL)
    ]
    assert len(fields) > 5
    for field in fields:
        assert f'maxlength="{limits.REASON_CHARACTERS}"' in field


def test_all_of_it_is_small() -> None:
    """But for the pages of docs/, each of which is a page of its own."""
    found = [
        file.compressed for name, file in console.FILES.items() if not name.startswith("docs/")
    ]
    assert sum(map(len, found)) <= MOST_BYTES


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_script_is_short_and_imports_what_is_here(name: str) -> None:
    text = SCRIPTS[name]
    assert len(text.splitlines()) <= MOST_LINES
    assert FORBIDDEN.search(text) is None
    for imported in map("".join, IMPORT.findall(text)):
        assert imported.startswith("."), f"{imported} is no relative path"
        assert (console.FOLDER / name).parent.joinpath(imported).resolve().is_file(), imported


def test_one_file_speaks_to_the_node() -> None:
    speaks = re.compile(r"\bfetch\(|XMLHttpRequest|new WebSocket|sendBeacon|EventSource")
    assert [name for name, text in SCRIPTS.items() if speaks.search(text)] == ["node.js"]
    assert speaks.search("await fetch('/script')")


def composed(text: str) -> list[str]:
    """Texts in a script that look like statements: they begin with a word that a statement begins
    with, and go on with another word in capitals or with something that is filled in."""
    found = re.findall(r"""[`'"](([A-Z]+) (?:[A-Z]{2}|\$\{)[^`'"]*)""", text)
    return [whole for whole, first in found if first in STATEMENTS]


def test_one_file_composes_statements() -> None:
    others = {
        name: text for name, text in SCRIPTS.items() if not re.match(r"statements(/|\.js)", name)
    }
    assert {name: composed(text) for name, text in others.items() if composed(text)} == {}
    assert [
        name for name, text in others.items() if re.search(r"import \{[^}]*\bstatement\b", text)
    ] == []
    assert composed("node.run({ text: `DROP ${what}`, params: {} })") == ["DROP ${what}"]
    assert composed("const text = 'INFO FOR NODE'") == ["INFO FOR NODE"]
    assert composed("placeholder='SELECT * FROM …' title='OK then'") == []
    assert composed(SCRIPTS["statements/topics.js"])


def missing(text: str) -> list[str]:
    """Routes that a script asks and the node's description lacks."""
    known = [re.sub(r"\{\w+\}", "[^/]+", route.path) + "$" for route in ROUTES]
    asked = re.findall(
        r"(?:request|reached|asked|socket)\(\s*(?:'[A-Z]+',\s*)?['`](/[^'`?]*)['`]", text
    )
    plain = [re.sub(r"\$\{[^}]*\}", "x", path) for path in asked]
    return [path for path in plain if not any(re.match(one, path) for one in known)]


def test_what_is_asked_is_described() -> None:
    assert [path for text in SCRIPTS.values() for path in missing(text)] == []
    assert missing("request('GET', '/secret')") == ["/secret"]
    assert missing("request('POST', `/vault/${ns}/${db}/${vault}/reveal`)") == []
    assert any(re.search(r"'/session'", text) for text in SCRIPTS.values())
