"""On the compiled tree, tests that exchange what the compiler has bound are left out.

Compiled code calls the functions of compiled modules directly, and carries the constants that it
uses, `Final`, also those of modules that are plain. A test that puts something else in their place
would test what it believes to have exchanged. Such tests run on the plain tree only, where all of
them run: they are skipped here at the line that exchanges something, and counted.
"""

from __future__ import annotations

import re
from functools import cache
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

import pytest

from compiling.modules import ROOMS, compiled, source
from tests.architecture.sources import ROOT

COMPILED = frozenset(compiled(ROOT))
"""The modules of this tree that are compiled; none in a checkout."""

left_out: list[str] = []
"""Why tests of this process were left out; they may have opened something by then."""


def guard() -> None:
    """Have every `monkeypatch.setattr` look first. Does nothing on the plain tree."""
    if not COMPILED:
        return
    exchange = pytest.MonkeyPatch.setattr

    def looks_first(patches: pytest.MonkeyPatch, target: Any, *what: Any, **how: Any) -> None:
        name = what[0] if what else how["name"]
        if isinstance(target, str):
            path, _, name = target.rpartition(".")
            found: Any = resolve_name(path) if path.partition(".")[0] in ROOMS else None
        else:
            found = target
        if found is not None and (why := bound(found, str(name))):
            left_out.append(why)
            pytest.skip(why)
        exchange(patches, target, *what, **how)

    pytest.MonkeyPatch.setattr = looks_first  # type: ignore[method-assign, assignment]


def bound(target: Any, name: str) -> str | None:
    """Why nothing can be put in the place of `target.name`; None: it can."""
    if isinstance(target, ModuleType):
        of = target.__name__
        if of.partition(".")[0] in ROOMS and re.search(rf"\b{re.escape(name)}\b", _sources()):
            return f"{of}.{name} is bound in compiled modules"
    else:
        kind = target if isinstance(target, type) else type(target)
        of = kind.__module__
    return f"{of} is compiled, and {name} bound" if of in COMPILED else None


@cache
def _sources() -> str:
    return "".join((ROOT / source(module)).read_text() for module in sorted(COMPILED))
