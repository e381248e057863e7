"""The order in which workers take files, or hard tests one by one: the longest first, and some
never beside each other."""

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
        "tests/cluster/test_cluster.py", "tests/examples/test_cluster.py",
    ),
}  # fmt: skip
"""Files that one worker runs one after the other, by the beginnings of their paths: they share a
browser or the parsed sources, or need several processes at once."""
SHARING = (
    "tests/test_compiled.py", "tests/clients/test_go.py", "tests/clients/test_kotlin.py",
    "tests/clients/test_rust.py", "tests/clients/test_typescript.py",
    "tests/conformance/test_go.py", "tests/conformance/test_kotlin.py",
    "tests/conformance/test_python.py", "tests/conformance/test_rust.py",
    "tests/conformance/test_typescript.py",
)  # fmt: skip
"""Files whose hard tests stay together too: they share a folder of built files, or what takes
minutes to make."""


def group_of(nodeid: str) -> str:
    """Return the tests that a test stays with: those of its file, or one of `APART`."""
    path = durations.file_of(nodeid)
    found = (name for name, beginnings in APART.items() if path.startswith(beginnings))
    return next(found, path)


def hard_group_of(nodeid: str) -> str:
    """Return the tests that a hard test stays with: as above, or none."""
    group = group_of(nodeid)
    return group if group in APART or group in SHARING else nodeid


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


def longest_hard_first(tests: list[pytest.Item], recorded: Mapping[str, float]) -> None:
    """Order hard tests by the seconds recorded of their functions, with those of their groups."""
    seconds: Counter[str] = Counter()
    for test in tests:
        took = recorded.get(durations.function_of(test.nodeid), inf)
        seconds[hard_group_of(test.nodeid)] += took  # type: ignore[assignment]
    tests.sort(key=lambda test: -seconds[hard_group_of(test.nodeid)])


class WholeGroups(LoadScopeScheduling):  # type: ignore[misc]
    """Hand out whole groups in the order of the tests, each when a worker has nothing left."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        config.option.loadscopereorder = False
        self._group_of = hard_group_of if is_hard(config) else group_of
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return self._group_of(nodeid)


def is_hard(config: pytest.Config) -> bool:
    """True if this is a run of the hard tests."""
    return bool(config.option.markexpr == "hard")
