"""The checks that run after every test catch what they are there for."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pykka
import pytest
import structlog

from tests import durations, leaks, scheduling
from tests.logbook import Logbook


def test_descriptor_left_open_is_seen(tmp_path: Path) -> None:
    before = leaks.open_descriptors()
    planted = os.open(tmp_path / "planted", os.O_CREAT | os.O_RDWR)
    try:
        assert leaks.leaked_descriptors(before) == [f"{planted} -> {tmp_path / 'planted'}"]
    finally:
        os.close(planted)
    assert leaks.leaked_descriptors(before) == []


def test_actor_left_alive_is_seen() -> None:
    class Planted(pykka.ThreadingActor):
        pass

    ref = Planted.start()
    assert len(leaks.leaked_actors()) == 1
    ref.stop()
    assert leaks.leaked_actors() == []


def report(nodeid: str, duration: float, when: str = "call", **started: int) -> SimpleNamespace:
    return SimpleNamespace(nodeid=nodeid, duration=duration, when=when, started=started)


REPORTS = [
    report("tests/a.py::test_one", 20.0, "setup", browsers=1, nodes=1),
    report("tests/a.py::test_one", 50.4, nodes=2),
    report("tests/a.py::test_two[x::y]", 0.0),
    report("tests/b/c/d/test_e.py::TestC::test_three[1]", 400.0, processes=1),
    report("tests/b/c/d/test_e.py::TestC::test_three[2]", 200.0, processes=1),
]


def test_how_long_each_rig_took_is_said() -> None:
    assert durations.by_rig(REPORTS) == [
        "  10 min 00 s     2 tests  tests/b/c/d/test_e.py",
        "   1 min 10 s     2 tests  tests/a.py",
        "  11 min 10 s     4 tests  all of them",
    ]


def test_a_profile_sums_folders_and_names_what_starts_something() -> None:
    head, *folders, _, _, _, three, one = map(str.split, durations.profile(REPORTS))
    assert head == ["tests", "seconds", "set-up", *durations.KINDS]
    assert folders == [
        ["2", "600.0", "0.0", "0", "2", "0", "0", "tests/b/c"],
        ["2", "70.4", "20.0", "3", "0", "0", "1", "tests"],
        ["4", "670.4", "20.0", "3", "2", "0", "1", "all", "of", "them"],
    ]
    assert three == [*folders[0][:-1], "tests/b/c/d/test_e.py::TestC::test_three"]
    assert one == ["1", *folders[1][1:-1], "tests/a.py::test_one"]


def test_recorded_seconds_order_the_files_that_workers_take(tmp_path: Path) -> None:
    path = tmp_path / "durations.txt"
    path.write_text("7.0 tests/gone.py\n30.0 tests/test_checks.py\n8.0 tests/a.py\n")
    durations.record(REPORTS[2:], path)
    recorded = {"tests/a.py": 0.0, "tests/b/c/d/test_e.py": 600.0, "tests/test_checks.py": 30.0}
    assert durations.recorded(path) == recorded
    wanted = [
        "tests/console/test_b.py::test", "tests/console/test_a.py::test",  # never recorded
        REPORTS[3].nodeid, "tests/test_checks.py::z", "tests/test_checks.py::a",
    ]  # fmt: skip
    items: list[Any] = [SimpleNamespace(nodeid=wanted[number]) for number in (3, 0, 2, 4, 1)]
    scheduling.longest_first(items, recorded)
    assert [item.nodeid for item in items] == wanted


def test_recorded_seconds_order_hard_tests_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "durations_hard.txt"
    path.write_text("7.0 tests/gone.py::test\n30.0 tests/test_checks.py::z\n")
    cluster = "tests/reliability/test_cluster.py::test_c"
    hard = [report("tests/test_checks.py::a[1]", 40), report("tests/test_checks.py::a[2]", 60)]
    durations.record_hard([*hard, report(cluster, 26)], path)
    recorded = {cluster: 26.0, "tests/test_checks.py::a": 50.0, "tests/test_checks.py::z": 30.0}
    assert durations.recorded(path) == recorded
    wanted = [
        "tests/test_checks.py::new", f"{cluster}[1]", f"{cluster}[2]",  # these never side by side
        hard[0].nodeid, hard[1].nodeid, "tests/test_checks.py::z",
    ]  # fmt: skip
    items: list[Any] = [SimpleNamespace(nodeid=wanted[number]) for number in (3, 1, 5, 4, 2, 0)]
    scheduling.longest_hard_first(items, recorded)
    assert [item.nodeid for item in items] == wanted
    assert len(set(map(scheduling.hard_group_of, wanted))) == 5


@pytest.mark.parametrize("level", ["warning", "error", "critical"])
def test_unexpected_log_line_is_seen(logbook: Logbook, level: str) -> None:
    getattr(structlog.get_logger(), level)("planted", reason="none")
    getattr(logging.getLogger("planted.library"), level)("from below")
    assert len(logbook.unexpected()) == 2
    logbook.allow(r"^\w+ planted reason='none'$")
    logbook.allow(r"planted\.library: from below")
    assert logbook.unexpected() == []


def test_quiet_log_line_is_kept_and_expected(logbook: Logbook) -> None:
    structlog.get_logger().info("listening", port=1)
    assert logbook.names() == ["listening"]
    assert logbook.unexpected() == []
