"""The pages say what the code says."""

from __future__ import annotations

import importlib
import json
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from language.functions import TABLE
from language.keywords import KEYWORDS
from protocol.version import VERSION
from surfaces.command import flags
from tests.architecture.sources import ROOMS, ROOT, files, imported

DOCS = ROOT / "docs"
GENERATE = importlib.import_module("docs.generate")
PAGES: dict[str, Callable[[], str]] = GENERATE.PAGES
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
NAMED = re.compile(r"[A-Za-z0-9_-]+")
OF_A_STORE = re.compile(
    r'(?:(?:path|folder)\}/|facts\.(?:write|read|first)\("|^_?[A-Z_]+: Final = ")([A-Z-]{4,})"',
    re.MULTILINE,
)
"""Names of files in a data directory, where a source says them."""
MODULE_OF = {
    "argon2-cffi": "argon2",
    "google-re2": "re2",
    "pyopenssl": "OpenSSL",
    "PyStemmer": "Stemmer",
}

OURS = {"storeclient"}
"""Packages of this repository that are installed beside the node, and not by their names from an
index, where these may be somebody else's."""


def stale(folder: Path) -> list[str]:
    """Generated pages in a folder that are not what the tables make now."""
    return [
        name
        for name, make in PAGES.items()
        if not (folder / name).is_file() or (folder / name).read_text() != make()
    ]


def dead_links(page: Path) -> list[str]:
    return [
        target
        for target in LINK.findall(page.read_text())
        if not target.startswith(("http://", "https://", "mailto:"))
        and not (page.parent / target).exists()
    ]


def test_generated_pages_are_fresh() -> None:
    assert not stale(DOCS), "run `make docs` and commit what it writes"
    assert GENERATE.WORDS.read_text("utf-8") == GENERATE.words_script()
    assert GENERATE.GO_TABLES.read_text("utf-8") == GENERATE.go_tables()
    assert GENERATE.TYPESCRIPT_TABLES.read_text("utf-8") == GENERATE.typescript_tables()
    assert GENERATE.RUST_TABLES.read_text("utf-8") == GENERATE.rust_tables()
    cargo = tomllib.loads((ROOT / "clients" / "rust" / "Cargo.toml").read_text("utf-8"))
    assert cargo["package"]["version"] == VERSION
    assert GENERATE.KOTLIN_TABLES.read_text("utf-8") == GENERATE.kotlin_tables()
    pom = (ROOT / "clients" / "kotlin" / "pom.xml").read_text("utf-8")
    assert re.findall("<version>(.*)</version>", pom)[0] == VERSION
    package = json.loads((ROOT / "clients" / "typescript" / "package.json").read_text("utf-8"))
    assert package["version"] == VERSION


WITHOUT_A_TEST = {"C37"}
"""Rules about what only the Python client does: the others gather no messages."""


@pytest.mark.parametrize(
    ("folder", "files", "head"),
    [
        ("rust", "src/tests/*.rs", r"^ *(?:async )?fn (?:node_)?((?:c\d+_)+)"),
        ("kotlin", "src/test/kotlin/storeclient/*Test.kt", r"^    fun `((?:C\d+ )+)"),
    ],
)
def test_each_rule_of_clients_has_a_test(folder: str, files: str, head: str) -> None:
    rules = set(
        re.findall(r"^- \*\*(C\d+)\*\*", (DOCS / "clients.md").read_text("utf-8"), re.MULTILINE)
    )
    named: set[str] = set()
    for path in (ROOT / "clients" / folder).glob(files):
        for numbers in re.findall(head, path.read_text("utf-8"), re.MULTILINE):
            named.update(re.findall(r"C\d+", numbers.upper()))
    assert named == rules - WITHOUT_A_TEST


def test_words_are_those_of_the_grammar() -> None:
    made = GENERATE.words_script()
    assert all(f'  "{word}",' in made for word in KEYWORDS)
    assert all(f'  ["{name}", ' in made for name in TABLE)


def test_what_the_node_never_answers_stands_apart() -> None:
    table, _, kept = PAGES["errors.md"]().partition("\nKept for what is still to come")
    assert "| AlreadyExists |" in table and "AlreadyExists" not in kept
    assert "| NotHeldHere |" not in table and "`NotHeldHere`" in kept


@pytest.mark.parametrize(
    "page",
    [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "ARCHITECTURE.md")),
        *sorted((ROOT / "clients").glob("*/README.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
        *sorted(DOCS.rglob("*.md")),
    ],
    ids=str,
)
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_the_glossary_names_files_that_exist() -> None:
    """Every row has a file of the sources, or links to a page."""
    page, _, _ = (DOCS / "glossary.md").read_text().partition("## Retired names")
    rows = [row for row in page.splitlines() if row.startswith("| ")]
    terms = [row for row in rows if not row.startswith(("| term", "|---"))]
    assert len(terms) > 50
    for row in terms:
        named = re.findall(r"`([a-z_/]+(?:\.py|/))`", row.rsplit(" | ", 1)[1])
        assert named or LINK.search(row), row
        assert not [name for name in named if not (ROOT / name).exists()], row


def test_index_names_every_page() -> None:
    index = (DOCS / "index.md").read_text()
    pages = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    assert pages <= set(LINK.findall(index))


def test_every_dependency_has_its_line_and_its_use() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    node = {_name(entry) for entry in project["dependencies"]}
    extra = {_name(entry) for group in project["optional-dependencies"].values() for entry in group}
    rows = [
        line.split("|")[1]
        for line in (DOCS / "dependencies.md").read_text().splitlines()
        if "|" in line
    ]
    cargo = tomllib.loads((ROOT / "clients" / "rust" / "Cargo.toml").read_text())
    crates = cargo["dependencies"].keys() | cargo["dev-dependencies"].keys()
    pom = (ROOT / "clients" / "kotlin" / "pom.xml").read_text("utf-8")
    found = re.findall("<artifactId>(.*)</artifactId>", pom)
    artifacts = {name for name in found if "plugin" not in name and name != "storeclient"}
    listed = {name for row in rows for name in NAMED.findall(row)}
    listed = {name for name in listed if name.strip("-")} - {"artifact", "crate", "package"}
    assert listed == node | extra | crates | artifacts

    used = {module.partition(".")[0] for source in files(*ROOMS) for _, module in imported(source)}
    used -= set(sys.stdlib_module_names) | set(ROOMS) | OURS
    assert used == {MODULE_OF.get(name, name) for name in node}


def test_constraints_pin_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {_name(entry) for entry in project["dependencies"]}
    wanted |= {_name(e) for group in project["optional-dependencies"].values() for e in group}
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    assert {name.lower().replace("_", "-") for name in wanted} <= pinned


def test_operations_page_names_every_flag_and_variable() -> None:
    page = (DOCS / "operations.md").read_text()
    for flag in flags.FLAGS:
        assert f"`{flag.name}" in page, flag.name
    for variable in re.findall(r"^[A-Z_]+", flags.ENVIRONMENT, re.MULTILINE):
        assert f"`{variable}`" in page, variable


def unnamed_files(*sources: str) -> set[str]:
    """Files of a data directory that sources name and the page on it does not."""
    page = (
        (DOCS / "operations.md").read_text().partition("## The directory")[2].partition("\n## ")[0]
    )
    found = {name for source in sources for name in OF_A_STORE.findall(source)}
    return {name for name in found if not re.search(rf"\b{name}\b(?!-)", page)}


def test_operations_page_names_every_file_of_a_store() -> None:
    sources = [source.text for source in files("storage", "surfaces")]
    found = {name for source in sources for name in OF_A_STORE.findall(source)}
    assert {"STORE", "BEGINS", "CLOSED", "RESERVE", "NEWEST", "DAMAGED"} < found
    assert unnamed_files(*sources) == set()


def torn_tables(text: str) -> list[str]:
    """Rows that no head stands above: a line between them and their table has ended it, and they
    are shown as they are written."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^(?<!\|\n)(\|.*)\n(?!\|---)", text, re.MULTILINE)


def test_no_table_is_torn() -> None:
    for page in [*DOCS.rglob("*.md"), ROOT / "README.md", *(ROOT / "clients").glob("*/README.md")]:
        assert torn_tables(page.read_text()) == [], page


def unmerged(text: str) -> list[str]:
    return re.findall(r"^(?:<{7}|>{7}) .*$", text, re.MULTILINE)


def test_no_page_is_half_merged() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "clients").glob("*/README.md"), *DOCS.rglob("*.md")]
    assert [page for page in pages if unmerged(page.read_text())] == []


def test_changelog_begins_with_this_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == VERSION


def _name(entry: str) -> str:
    match = NAMED.match(entry)
    assert match is not None
    return match[0]
