"""A file does one job: none of the sources is so long that it must be doing two."""

from __future__ import annotations

import pytest

from tests.architecture.sources import ROOMS, Source, files

LINES = 600


def long(sources: list[Source]) -> list[str]:
    """Those that are too long."""
    counts = {source.path: source.text.count("\n") for source in sources}
    return [f"{path} has {count} lines" for path, count in counts.items() if count > LINES]


def test_no_file_is_long() -> None:
    found = long(files(*ROOMS, "bench", "clients", "compiling", "docs", "examples"))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("lines", "found"), [(LINES, 0), (LINES + 1, 1)])
def test_a_planted_long_file_is_found(lines: int, found: int) -> None:
    assert len(long([Source("actors/planted.py", "pass\n" * lines)])) == found
