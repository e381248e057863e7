"""Writes the pages of docs/ that are made from the code's own tables, and of all pages the HTML
that the console shows.

`make docs` runs it; a test fails when a page in git and its table no longer agree.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from docs import grammar, html
from language.functions import TABLE
from protocol import limits
from protocol.errors import CATALOGUE
from protocol.version import VERSION

HERE = Path(__file__).parent
ROOMS = ("protocol", "language", "storage", "actors", "surfaces")
MADE = "<!-- Made by `make docs`. Change the table in {source}, not this page. -->\n\n"


RETRY = """
## Retry a conflict

The node runs a transaction again after a conflict, up to 16 times, and then answers `Conflict`.
Under heavy load on the same records, repeat the whole transaction in the application, with growing
random pauses. Repeat exactly the refusals whose `retry` is true: nothing of them was committed.

```python
import random
import time

from storeclient import Answer, Client, errors


def run_again(client: Client, script: str, params: dict[str, object], tries: int = 8) -> Answer:
    for number in range(tries - 1):
        try:
            return client.run(script, params)
        except errors.Refused as refusal:
            if not refusal.retry:
                raise
            pause = 30 if refusal.code == "TooManyTries" else 0.05 * 2**number
        time.sleep(random.uniform(0.5, 1) * pause)
    return client.run(script, params)


MOVE = "BEGIN; UPDATE account:ana SET money -= $sum; UPDATE account:bo SET money += $sum; COMMIT"
with Client("127.0.0.1:8001", user="root", password="...", ns="shop", db="main") as client:
    client.run("DEFINE TABLE account; CREATE account:ana SET money = 100; CREATE account:bo")
    run_again(client, MOVE, {"sum": 30})
    print(client.query("SELECT VALUE money FROM account"))
# = [70, 30]
```

`UnknownOutcome` of the node, and `OutcomeUnknown` of a client whose connection broke, have no
`retry`: the transaction may have been committed. Repeat it only if it is safe to run twice, such as
one that creates a record with a given id ([cookbook](cookbook.md)).
"""
"""Last section of `errors.md`."""


def errors_page() -> str:
    """`errors.md`, from the error catalogue."""
    lines = [
        "# Errors",
        "",
        "Every refusal has the same shape on every surface:",
        "",
        "```json",
        '{"error": {"code": "Unknown", "message": "…", "status": 404, "retry": false,',
        '           "detail": {}, "request": "r-7f3a"}}',
        "```",
        "",
        "`code` is stable: decide by it. `message` is for people and may change. `retry` says",
        "whether the same request, sent again unchanged, may succeed. `detail` holds facts for",
        "programs. `request` names the request in the node's [logs](operations.md#logs), where",
        "each refusal has a line. A refusal of a script also",
        "says `statement`, `line` and `column` where one statement is meant.",
        "",
        "A script stops at its first refusal and keeps what it has committed by then, each",
        "statement outside of `BEGIN … COMMIT` being a commit. `detail.committed` is the newest of",
        "these sequences; without it nothing was changed. With it `retry` is always false: sent",
        "again, the script would do that part twice. A write whose answer would be larger than a",
        "wire frame is refused before its commit. `UnknownOutcome` is about `detail.sequence`, and",
        "`detail.committed` about what the script had committed before that.",
        "",
        "| status | code | meaning | retry |",
        "|---|---|---|---|",
    ]
    used = _used()
    for code, refusal in sorted(CATALOGUE.items(), key=lambda row: (row[1].status, row[0])):
        if code not in used:
            continue
        retry = "yes" if refusal.retry else ""
        if refusal.retry_after_s is not None:
            retry = f"yes, after {refusal.retry_after_s} s"
        meaning = _cell(inspect.cleandoc(refusal.__doc__ or ""))
        lines.append(f"| {refusal.status} | {code} | {meaning} | {retry} |")
    kept = sorted(f"`{code}`" for code in CATALOGUE if code not in used)
    if kept:
        lines += ["", "Kept for what is still to come, and answered by nothing in this version:"]
        lines += [", ".join(kept) + "."]
    return _page("protocol/errors.py", [*lines, "", RETRY.strip()])


MET = (
    ("a record", "RECORD_BYTES", "TooLarge"),
    ("a record id", "RECORD_ID_BYTES", "TooLarge"),
    ("the nesting of a value", "DEPTH", "TooLarge"),
    ("a name", "NAME_CHARACTERS", "NameRefused, in a script TooLarge"),
    ("a transaction", "TRANSACTION_BYTES", "TooLarge"),
    ("attempts of a transaction after a conflict", "COMMIT_RETRIES", "Conflict"),
    ("a script", "SCRIPT_BYTES", "TooLarge"),
    ("the memory of a script", "REQUEST_MEMORY_BYTES", "TooLarge"),
    ("the memory of all scripts of a user", "USER_MEMORY_BYTES", "Busy"),
    ("rows that a statement reads", "ROWS_READ", "TooLarge"),
    ("an answer", "FRAME_BYTES", "AnswerTooLarge"),
    ("a cache key", "KEY_BYTES", "BadRequest"),
    ("a cache value", "CACHE_VALUE_BYTES", "TooLarge"),
    ("a message of a topic", "MESSAGE_BYTES", "TooLarge"),
    ("messages of one PUBLISH", "MESSAGES_PUBLISHED", "BadRequest"),
    ("a value in a vault", "VAULT_VALUE_BYTES", "TooLarge"),
    ("fields of a table", "FIELDS", "TooLarge"),
    ("fields of an index", "INDEX_FIELDS", "TooLarge"),
    ("a password, in characters, at least", "PASSWORD_CHARACTERS_MIN", "BadRequest"),
    ("connections of a surface", "CONNECTIONS", "Full"),
    ("running requests of a surface", "RUNNING", "Busy"),
    ("unread changes of a feed", "FEED_BEHIND_BYTES", "TooSlow"),
    ("moments that a user keeps", "MOMENTS_OF_USER", "Busy"),
    ("commits of the log that are kept", "LOG_FRAMES_KEPT", "LogPruned"),
)
"""Limits that users meet: subject, name, and code of the refusal."""


def limits_page() -> str:
    """`limits.md`, from the constants of `protocol/limits.py` and the texts below them."""
    lines = [
        "# Limits",
        "",
        "For developers and operators: the bounds of a node, and the refusals beyond them.",
        "",
        "Limits are constants. Flags set four of them: `LOG_FRAMES_KEPT` (`--keep-log`),",
        "`ENTRIES_KEPT` (`--keep-statements`), `SLOW_STATEMENT_SECONDS` (`--slow`) and",
        "`UNSEAL_SECONDS` (`--unseal-for`). Some rows are defaults of clauses and of fields of a",
        "request, and say so. Sizes are bytes and times seconds unless the name says otherwise.",
        "",
        "## Limits that you meet",
        "",
        "Beyond the limit, the answer is this [code](errors.md):",
        "",
        "| limit on | value | code | name |",
        "|---|---|---|---|",
    ]
    for subject, name, code in MET:
        figure = _figure(name, getattr(limits, name))
        codes = re.sub(r"[A-Z]\w+", r"`\g<0>`", code)
        lines.append(f"| {subject} | {figure} | {codes} | `{name}` |")
    used, groups = _used(), dict[str, list[str]]()
    for group, name, text in _limits():
        if name in used:
            figure = _figure(name, getattr(limits, name))
            groups.setdefault(group, []).append(f"| {name} | {figure} | {_cell(text)} |")
    for group in sorted(groups, key=lambda one: one.startswith("inside ")):  # stable: those last
        lines += ["", f"## {group[0].upper()}{group[1:]}", ""]
        lines += ["| limit | value | bounds |", "|---|---|---|", *groups[group]]
    return _page("protocol/limits.py", lines)


def functions_page() -> str:
    """`functions.md`, from the functions table of the language."""
    lines = [
        "# Functions",
        "",
        "Arguments are checked by type and never converted; one in brackets may be left out. A",
        "function that refuses names an error of [errors.md](errors.md).",
        "",
        "`search::` functions take an [analyzer](search.md) that the database defines, or make a",
        "query. VECTOR indexes make `vector::` functions [fast](vectors.md). `fn::name` is a",
        "function that the database [defines](statements.md#functions).",
    ]
    group = None
    for name in sorted(TABLE, key=lambda name: ("::" in name, name)):
        function = TABLE[name]
        if name.rpartition("::")[0] != group:
            group = name.rpartition("::")[0]
            lines += ["", f"## {group or 'Plain'}", "", "| function | answers |", "|---|---|"]
        lines.append(f"| `{_cell(function.signature)}` | {_cell(function.doc)} |")
    return _page("language/functions/", lines)


def grammar_page() -> str:
    """`grammar.md`, from the parser's tables and the rules beside its functions."""
    return _page("language/parsing/", grammar.page())


PAGES: dict[str, Callable[[], str]] = {
    "errors.md": errors_page,
    "functions.md": functions_page,
    "grammar.md": grammar_page,
    "limits.md": limits_page,
}
"""Every generated page, by its name in docs/."""


WORDS = HERE.parent / "console" / "words.js"


def words_script() -> str:
    """The words and functions of the language, for the console's editor."""
    rules = "".join(re.findall(r"```(.*?)```", "\n".join(grammar.page()), re.DOTALL))
    words = sorted(set(re.findall(r"\b[A-Z]{2,}\b", rules)))
    lines = [
        "/** Made by `make docs` of the language's own tables: change those, not this file. */",
        "",
        "/** Words of the language. */",
        *_export("WORDS", words),
        "",
        "/** Functions: name, how it is called, what it answers. */",
        *_export(
            "FUNCTIONS",
            [[name, TABLE[name].signature, TABLE[name].doc] for name in sorted(TABLE)],
        ),
    ]
    return "\n".join(lines) + "\n"


GO_TABLES = HERE.parent / "clients" / "go" / "tables.go"


def go_tables() -> str:
    """Version and codes of refusals for the Go client, from the node's own."""
    lines = [
        "// Code generated by `make docs` of protocol/errors.py. DO NOT EDIT.",
        "",
        "package storeclient",
        "",
        "// Version is that of the client and of the node that it came with.",
        f'const Version = "{VERSION}"',
        "",
        "// Codes of refusals.",
        "const (",
    ]
    for code, refusal in sorted(CATALOGUE.items()):
        meaning = inspect.cleandoc(refusal.__doc__ or "").partition("\n\n")[0]
        lines += [f"\t// {code}: {' '.join(meaning.split())}", f'\t{code} Code = "{code}"']
    return "\n".join([*lines, ")", ""])


TYPESCRIPT_TABLES = HERE.parent / "clients" / "typescript" / "src" / "tables.ts"


def typescript_tables() -> str:
    """Version and codes of refusals for the TypeScript client, from the node's own."""
    lines = [
        "/** Made by `make docs` of protocol/errors.py: change that, not this file. */",
        "",
        "/** Version of the client, and of the node that it came with. */",
        f'export const VERSION = "{VERSION}";',
        "",
        "/** Codes of refusals. */",
        "export type Code =",
    ]
    lines += [f'  | "{code}"' for code in sorted(CATALOGUE)]
    return "\n".join(lines) + ";\n"


RUST_TABLES = HERE.parent / "clients" / "rust" / "src" / "tables.rs"


def rust_tables() -> str:
    """Version and codes of refusals for the Rust client, from the node's own."""
    codes = sorted(CATALOGUE)
    lines = [
        "//! Made by `make docs` of protocol/errors.py: change that, not this file.",
        "",
        "use std::fmt;",
        "",
        "/// Version of the client, and of the node that it came with.",
        f'pub const VERSION: &str = "{VERSION}";',
        "",
        "/// Stable name of a refusal.",
        "#[derive(Clone, Debug, PartialEq, Eq, Hash)]",
        "#[non_exhaustive]",
        "pub enum Code {",
    ]
    for code in codes:
        meaning = inspect.cleandoc(CATALOGUE[code].__doc__ or "").partition("\n\n")[0]
        escaped = re.sub(r"([\[\]])", r"\\\1", " ".join(meaning.split()))
        lines += [f"    /// {escaped}", f"    {code},"]
    lines += [
        "    /// A code that this version does not know.",
        "    Other(Box<str>),",
        "}",
        "",
        "impl Code {",
        "    /// Return the name.",
        "    pub fn as_str(&self) -> &str {",
        "        match self {",
        *(f'            Self::{code} => "{code}",' for code in codes),
        "            Self::Other(name) => name,",
        "        }",
        "    }",
        "}",
        "",
        "impl From<&str> for Code {",
        "    fn from(name: &str) -> Self {",
        "        match name {",
        *(f'            "{code}" => Self::{code},' for code in codes),
        "            _ => Self::Other(name.into()),",
        "        }",
        "    }",
        "}",
        "",
        "impl fmt::Display for Code {",
        "    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {",
        "        f.write_str(self.as_str())",
        "    }",
        "}",
    ]
    return "\n".join([*lines, ""])


KOTLIN_TABLES = (
    HERE.parent / "clients" / "kotlin" / "src" / "main" / "kotlin" / "storeclient" / "Tables.kt"
)


def kotlin_tables() -> str:
    """Version and codes of refusals for the Kotlin client, from the node's own."""
    lines = [
        "// Made by `make docs` of protocol/errors.py: change that, not this file.",
        "",
        "package storeclient",
        "",
        "/** Version of the client, and of the node that it came with. */",
        f'public const val VERSION: String = "{VERSION}"',
        "",
        "/** Codes of refusals. A newer node may send others. */",
        "public object Code {",
    ]
    for code, refusal in sorted(CATALOGUE.items()):
        meaning = inspect.cleandoc(refusal.__doc__ or "").partition("\n\n")[0]
        name = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", code).upper()
        words = " ".join(meaning.split()).replace("*/", "* /").replace("``", "`")
        lines += [
            *textwrap.wrap(words, 110, initial_indent="    /** ", subsequent_indent="     * "),
            f'    public const val {name}: String = "{code}"',
            "",
        ]
        lines[-3] += " */"
    return "\n".join([*lines[:-1], "}", ""])


def _export(name: str, rows: list[Any]) -> list[str]:
    told = [f"  {json.dumps(row, ensure_ascii=False)}," for row in rows]
    return [f"export const {name} = [", *told, "];"]


def main() -> None:
    """Write every page."""
    for name, make in PAGES.items():
        (HERE / name).write_text(make(), encoding="utf-8")
        print(f"docs/{name}")
    WORDS.write_text(words_script(), encoding="utf-8")
    print("console/words.js")
    GO_TABLES.write_text(go_tables(), encoding="utf-8")
    print("clients/go/tables.go")
    TYPESCRIPT_TABLES.write_text(typescript_tables(), encoding="utf-8")
    print("clients/typescript/src/tables.ts")
    RUST_TABLES.write_text(rust_tables(), encoding="utf-8")
    print("clients/rust/src/tables.rs")
    KOTLIN_TABLES.write_text(kotlin_tables(), encoding="utf-8")
    print("clients/kotlin/src/main/kotlin/storeclient/Tables.kt")
    html.write()
    print("console/docs/")


def _page(source: str, lines: list[str]) -> str:
    return MADE.format(source=source) + "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """A text as the cell of a table: one line, no column of its own."""
    return " ".join(text.split()).replace("|", "\\|")


def _used() -> set[str]:
    """The words of the node's code, but for those of the tables themselves: what the tables hold
    and no other file names is there for what is still to come."""
    words: set[str] = set()
    for room in ROOMS:
        for path in sorted((HERE.parent / room).rglob("*.py")):
            if path not in (HERE.parent / "protocol/errors.py", HERE.parent / "protocol/limits.py"):
                words.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return words


def _limits() -> Iterator[tuple[str, str, str]]:
    """Group, name and text of each limit, in the order of their file."""
    assert limits.__file__ is not None
    source = Path(limits.__file__).read_text(encoding="utf-8")
    groups = {
        source.count("\n", 0, found.start()) + 1: found[1]
        for found in re.finditer(r"^# --- (.+?) -+$", source, re.MULTILINE)
    }
    body = ast.parse(source).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.target.id in ("KIB", "MIB"):
                continue
            assert isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            group = groups[max(line for line in groups if line < node.lineno)]
            yield group, node.target.id, str(following.value.value)


def _figure(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and "BYTES" in name:
        for unit, size in (("MiB", limits.MIB), ("KiB", limits.KIB)):
            if value >= size and value % size == 0:
                return f"{value // size} {unit}"
        return f"{value} bytes"
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else f"{value}"


if __name__ == "__main__":
    main()
