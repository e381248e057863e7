"""The tour of the README works as it is written."""

from __future__ import annotations

from pathlib import Path

from tests.docs import tour
from tests.processes import serving


def test_tour(tmp_path: Path) -> None:
    with serving(tmp_path / "store", STORE_PASSWORD=tour.PASSWORD) as node:
        tour.play(tour.run_here, node.at("http"), node.at("wire"))


def test_it_begins_in_each_way_of_installing() -> None:
    assert set(tour.starts()) == {"checkout", "pip", "image", "Debian package"}
