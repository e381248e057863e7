"""The checks that run after every test catch what they are there for."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pykka
import pytest
import structlog

from tests import durations, leaks
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


def test_how_long_each_rig_took_is_said() -> None:
    reports = [
        SimpleNamespace(nodeid="tests/a.py::test_one", duration=20.0),
        SimpleNamespace(nodeid="tests/a.py::test_one", duration=50.4),
        SimpleNamespace(nodeid="tests/a.py::test_two[x::y]", duration=0.0),
        SimpleNamespace(nodeid="tests/b.py::TestC::test_three", duration=600.0),
    ]
    assert durations.by_rig(reports) == [
        "  10 min 00 s     1 tests  tests/b.py",
        "   1 min 10 s     2 tests  tests/a.py",
        "  11 min 10 s     3 tests  all of them",
    ]


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
