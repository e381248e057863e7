"""The order in which workers take files: the longest first, and some never beside each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests import durations

APART = {
    "browsers": ("tests/console/", "tests/surfaces/http/test_feeds_page.py"),
    "sources": ("tests/architecture/", "tests/docs/test_pages.py"),
    "clusters": (
        "tests/reliability/test_cluster", "tests/clients/test_real_nodes.py",
        "tests/bench/test_cluster.py", "tests/examples/test_cluster.py",
    ),
}  # fmt: skip
"""Files that one worker runs one after the other, by the beginnings of their paths: they share a
browser or the parsed sources, or need several processes at once."""


def group_of(nodeid: str) -> str:
    """Return the tests that a test stays with: those of its file, or one of `APART`."""
    path = durations.file_of(nodeid)
    found = (name for name, beginnings in APART.items() if path.startswith(beginnings))
    return next(found, path)


def longest_first(tests: list[pytest.Item], recorded: Mapping[str, float]) -> None:
    """Order tests by the seconds recorded of the files in their groups, the longest first. A file
    that was not recorded comes before all others."""
    seconds: Counter[str] = Counter()
    for path in {durations.file_of(test.nodeid) for test in tests}:
        seconds[group_of(path)] += recorded.get(path, inf)  # type: ignore[assignment]

    def place(test: pytest.Item) -> tuple[float, str]:
        group = group_of(test.nodeid)
        return -seconds[group], group

    tests.sort(key=place)


class WholeGroups(LoadScopeScheduling):  # type: ignore[misc]
    """Hand out whole groups in the order of the tests, each when a worker has nothing left."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
