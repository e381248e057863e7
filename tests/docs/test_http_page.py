"""`docs/http.md` against the code: the reasons of /ready, and every series of /metrics."""

from __future__ import annotations

import re
from typing import get_args

from protocol.requests import Unready
from tests.architecture.sources import ROOT
from tests.surfaces import matrix

PAGE = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
TOPICS = (ROOT / "docs" / "topics.md").read_text(encoding="utf-8")
SERIES = re.compile(r'"(store_[a-z_]+)"')


def unnamed(source: str) -> set[str]:
    """Series that a source makes and no page names."""
    return {name for name in SERIES.findall(source) if f"`{name}`" not in PAGE + TOPICS}


def test_every_reason_of_ready_stands_there() -> None:
    assert {reason for reason in get_args(Unready) if f"`{reason}`" not in PAGE} == set()


def test_every_series_stands_there() -> None:
    source = (ROOT / "surfaces" / "http" / "metrics.py").read_text(encoding="utf-8")
    assert len(SERIES.findall(source)) > 15
    assert unnamed(source) == set()


def shown_to_anybody(page: str) -> dict[str, bool]:
    """Whether each series of the page's table is shown to anybody."""
    table = page.partition("## Metrics")[2].partition("\n## ")[0]
    found: dict[str, bool] = {}
    for line in re.findall(r"^\| `.*\|$", table, re.MULTILINE):
        _, series, _, shown, *_ = line.split("|")
        names = re.findall(r"`([a-z_]+…?)`", series)
        ending = names.pop() if names[-1] == "_total" else ""
        found |= {name + ending: shown.strip() == "anybody" for name in names}
    return found


def told_otherwise(page: str) -> list[str]:
    """Series of the matrix of callers that the page shows to others, or not at all."""
    page_says = shown_to_anybody(page)
    prefixes = {name[:-1]: shown for name, shown in page_says.items() if name.endswith("…")}
    wrong = []
    for name, row in matrix.rows(matrix.FIGURES).items():
        says = page_says.get(name)
        for prefix, shown in prefixes.items():
            says = shown if says is None and name.startswith(prefix) else says
        if says != (row.cells["n"] == "ok"):
            wrong.append(name)
    return wrong


def test_each_series_is_shown_to_whom_the_page_says() -> None:
    assert told_otherwise(PAGE) == []
    planted = PAGE.replace("| `surface` | who may read INFO FOR NODE |", "| `surface` | anybody |")
    assert told_otherwise(planted) == ["store_tls_certificate_expires_seconds"]
