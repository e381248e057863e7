"""The soak sees what grows, and takes nothing for growth that isn't."""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random

import pytest

from bench.soak import __main__ as command
from bench.soak import small, work
from bench.soak.judge import TooShort, judge

RANDOM = Random(7)
LEAK = [70 + 0.05 * n + RANDOM.gauss(0, 1.5) for n in range(720)]
FLAT = [70 + RANDOM.gauss(0, 3) for _ in range(720)]
FILLS_UP = [70 + 30 * (1 - 0.97**n) + RANDOM.gauss(0, 1.5) for n in range(720)]
SAW = [70 + n % 60 + RANDOM.gauss(0, 1.5) for n in range(720)]
STEP = [70.0 if n < 500 else 90.0 for n in range(720)]


@pytest.mark.parametrize("samples", [FLAT, FILLS_UP, SAW, STEP])
def test_what_has_a_bound_is_no_leak(samples: list[float]) -> None:
    assert not judge("bounded", samples, 4).grows


def test_a_short_run_is_not_judged() -> None:
    with pytest.raises(TooShort):
        judge("short", LEAK[:40], 4)


@pytest.mark.hard
def test_everybody_works_and_all_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SAMPLES", 20)
    assert command.soak(0.3, 1, "surfaces.command.main", tmp_path) == 2
    said = capsys.readouterr().out
    assert "too few samples to judge" in said
    assert all(f" {name}" in said.splitlines()[0] for name in work.WORK)
    with (tmp_path / "samples.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20 and all(float(row["resident_mib"]) > 10 for row in rows)
    drawn = (tmp_path / "soak.svg").read_text()
    assert drawn.count("<polyline") == len(rows[0]) - 1
    assert not list(tmp_path.glob("storenode-soak-*"))


def test_bounds_that_are_made_small_are_those_that_the_node_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module, name, _ in small.BOUNDS:
        monkeypatch.setattr(module, name, getattr(module, name))
    small.shrink()
    assert all(getattr(module, name) == bound for module, name, bound in small.BOUNDS)


@pytest.mark.hard
@pytest.mark.timeout(300)
def test_a_node_that_leaks_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SAMPLES", 96)
    monkeypatch.setenv("STORENODE_FAULTS", "keeps-requests")
    assert command.soak(1.5, 1, "tests.reliability.faulty", tmp_path) == 1
