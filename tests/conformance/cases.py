"""The cases of `clients/conformance/cases`: reads them, and checks their form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.architecture.sources import ROOT

FOLDER: Final = ROOT / "clients" / "conformance"
NODES: Final = ("peer", "members", "real", "own", "cluster")
KEYS: Final = frozenset(
    ("name", "rule", "node", "count", "define", "each", "open", "tls", "hard", "steps")
)
RULE: Final = re.compile(r"^- \*\*(C\d+)\*\*", re.MULTILINE)


class BadCase(Exception):
    """A case has not the form of one; the message says which and why."""


class _Loader(yaml.CSafeLoader):  # type: ignore[misc]
    """YAML in which `on`, `no` and the like are strings."""


_Loader.yaml_implicit_resolvers = {
    first: [one for one in resolvers if not one[0].endswith(("bool", "timestamp", "int", "float"))]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern, _first in (
    ("bool", r"^(?:true|false)$", "tf"),
    ("int", r"^-?(?:0|[1-9][0-9]*)$", "-0123456789"),
    ("float", r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:e[+-]?[0-9]+)?|e[+-]?[0-9]+)$", "-0123456789"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


@dataclass(frozen=True)
class Case:
    """Case, for one set of the values of its `each`."""

    group: str
    name: str
    rules: tuple[str, ...]
    node: str
    steps: tuple[Mapping[str, Any], ...]
    count: int = 1
    define: tuple[str, ...] = ()
    opens: bool = True
    """True if the client `c` is opened before the first step."""
    tls: str | None = None
    hard: bool = False
    names: Mapping[str, Any] = field(default_factory=dict)
    """Values of `$name` in its steps."""

    @property
    def id(self) -> str:
        """Name in the list of tests."""
        return f"{self.group}: {self.name}"


@cache
def rules() -> tuple[str, ...]:
    """Return the rules of docs/clients.md."""
    return tuple(RULE.findall((ROOT / "docs" / "clients.md").read_text(encoding="utf-8")))


@cache
def cases() -> tuple[Case, ...]:
    """Return all cases, in the order of their files. :raises BadCase: one is malformed"""
    found = tuple(case for path in sorted((FOLDER / "cases").glob("*.yaml")) for case in read(path))
    ids = [case.id for case in found]
    twice = {one for one in ids if ids.count(one) > 1} if len(set(ids)) < len(ids) else ()
    if twice:
        raise BadCase(f"two cases have one name: {sorted(twice)}")
    return found


def read(path: Path) -> Iterator[Case]:
    """Yield the cases of a file. :raises BadCase: one is malformed"""
    for one in yaml.load(path.read_text(encoding="utf-8"), _Loader):
        yield from _expanded(path.stem, one)


def _expanded(group: str, one: dict[str, Any]) -> Iterator[Case]:
    name = one.get("name")
    where = f"{group}: {name}"
    if unknown := set(one) - KEYS:
        raise BadCase(f"{where}: {sorted(unknown)} is nothing that a case has")
    if not isinstance(name, str) or one.get("node") not in NODES or not one.get("steps"):
        raise BadCase(f"{where}: a case has a name, a node of {NODES} and steps")
    named = one.get("rule")
    given = tuple(named if isinstance(named, list) else [named])
    for rule in given:
        if rule not in rules():
            raise BadCase(f"{where}: there is no rule {rule}")
    opened = [step["open"] for step in one["steps"] if "open" in step]
    opens = one.get("open", True) and not any("c" in (given, _name_of(given)) for given in opened)
    define = one.get("define", ())
    for names in _sets(one.get("each"), where):
        yield Case(
            group=group,
            name=_named(name, names),
            rules=given,
            node=one["node"],
            steps=tuple(one["steps"]),
            count=one.get("count", 1),
            define=tuple([define] if isinstance(define, str) else define),
            opens=opens,
            tls=one.get("tls"),
            hard=one.get("hard", False),
            names=names,
        )


def _name_of(given: Any) -> str:
    return str(given.get("as", "c")) if isinstance(given, dict) else ""


def _sets(each: Any, where: str) -> list[dict[str, Any]]:
    if each is None:
        return [{}]
    if isinstance(each, str):
        file, _, key = each.partition(" ")
        found: list[dict[str, Any]] = json.loads((FOLDER / file).read_text())[key]
        return found
    if isinstance(each, dict):
        ((key, values),) = each.items()
        return [{key: value} for value in values]
    if not isinstance(each, list):
        raise BadCase(f"{where}: each is a file, a list or a name with its values")
    return each


def _named(name: str, names: Mapping[str, Any]) -> str:
    for key, value in names.items():
        name = name.replace("{" + key + "}", str(value))
    return name
