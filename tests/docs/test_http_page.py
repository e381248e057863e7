"""`docs/http.md` against the code: the reasons of /ready, and every series of /metrics."""

from __future__ import annotations

import re
from typing import get_args

from protocol.requests import Unready
from tests.architecture.sources import ROOT

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


def test_a_planted_series_is_missed() -> None:
    assert unnamed('GaugeMetricFamily("store_planted", "")') == {"store_planted"}
