"""The case files: what the language answers, statement by statement.

```
# What the file is about.

setup
DEFINE TABLE city;
INSERT INTO city [{ id: 1, name: 'Bergen' }];

=== A title that says what must be true
# Why it must be, when the title does not say it.
SELECT name FROM city;
RETURN 1 / 0;
---
= [{ name: 'Bergen' }]
! DivisionByZero: division by zero
```

A case is a script, run on a fresh database after the file's setup. Below `---` stands one line for
each result: `=` and the value as the language writes it. A refusal comes last: `!`, its code, and
the first line of its message. `@ns.db` as a first line of a case sets the place it runs in, `@`
alone none. Lines at a case's head that begin with `# ` are its reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

TITLE = "=== "


class CaseError(Exception):
    """A case file that can't be read: the message says which line."""


@dataclass
class Case:
    """One script and what it answers."""

    title: str
    reason: str
    script: str
    expected: list[str]
    place: tuple[str | None, str | None] = ("shop", "main")


@dataclass
class CaseFile:
    """A file of cases."""

    about: str
    setup: str
    cases: list[Case] = field(default_factory=list)


def read(path: Path) -> CaseFile:
    """The cases of a file. :raises CaseError: the file is not of the format"""
    return parse(path.read_text(), str(path))


def parse(text: str, name: str = "<text>") -> CaseFile:
    """The cases of a file's text. :raises CaseError: it is not of the format"""
    head, *parts = _sections(text)
    about, rest = _comment(head)
    setup = "\n".join(rest).strip()
    if setup and not setup.startswith("setup\n"):
        raise CaseError(f"{name}: before the first `===` stand comments and one `setup`")
    found = CaseFile(about, setup.removeprefix("setup").strip())
    if not about:
        raise CaseError(f"{name}: says nothing about why it is there")
    for title, *lines in parts:
        found.cases.append(_case(title.removeprefix(TITLE).strip(), lines, name))
    titles = [case.title for case in found.cases]
    for title in titles:
        if titles.count(title) > 1:
            raise CaseError(f"{name}: two cases are called {title!r}")
    return found


def _sections(text: str) -> list[list[str]]:
    sections: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith(TITLE):
            sections.append([])
        sections[-1].append(line)
    return sections


def _comment(lines: list[str]) -> tuple[str, list[str]]:
    count = 0
    while count < len(lines) and (lines[count].startswith("# ") or lines[count] == "#"):
        count += 1
    return "\n".join(line[2:] for line in lines[:count]), lines[count:]


def _case(title: str, lines: list[str], name: str) -> Case:
    where = f"{name}: {title}"
    reason, rest = _comment(lines)
    place: tuple[str | None, str | None] = ("shop", "main")
    if rest and rest[0].startswith("@"):
        namespace, _, database = rest.pop(0)[1:].strip().partition(".")
        place = (namespace or None, database or None)
    if rest.count("---") != 1:
        raise CaseError(f"{where}: one line `---` parts the script from its answers")
    at = rest.index("---")
    script = "\n".join(rest[:at]).strip()
    expected = [line for line in rest[at + 1 :] if line.strip()]
    if not script:
        raise CaseError(f"{where}: has no script")
    for number, line in enumerate(expected):
        if not line.startswith(("= ", "! ")):
            raise CaseError(f"{where}: answers begin with `= ` or `! `, not {line!r}")
        if line.startswith("! ") and number != len(expected) - 1:
            raise CaseError(f"{where}: nothing is answered after a refusal")
    return Case(title, reason, script, expected, place)


def write(file: CaseFile) -> str:
    """The text of a file, as `parse` reads it."""
    parts = [_commented(file.about)]
    if file.setup:
        parts.append(f"setup\n{file.setup}\n")
    for case in file.cases:
        lines = [f"{TITLE}{case.title}"]
        if case.reason:
            lines.append(_commented(case.reason).rstrip("\n"))
        if case.place != ("shop", "main"):
            lines.append("@" + ".".join(part for part in case.place if part))
        lines += [case.script, "---", *case.expected]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _commented(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())
