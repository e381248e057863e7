"""Fixtures every test may use, and the checks that run after each one."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from bench import ports
from tests import bound, canaries, durations, leaks, scheduling
from tests.architecture.sources import ROOT
from tests.logbook import Logbook

settings.register_profile(
    "storenode", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # how long an example takes says something of the machine, not of the node
settings.load_profile("storenode")

FIGURE = "figure"

if not (ROOT / "console" / "docs" / "index.html").is_file():
    importlib.import_module("docs.html").write()  # a node reads the pages when it is imported

bound.guard()
ports.claim()  # before tests are asked what they opened
gc.disable()  # while tests are collected, which makes a million objects and no garbage


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of `make test-profile`, and of `make test-hard PYTEST_ARGS=--record-durations`."""
    parser.addoption(
        "--record-durations", action="store_true",
        help="print what tests took and started, and record their seconds for the schedule",
    )  # fmt: skip


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Schedule groups of files where `--dist loadfile` asks for files."""
    return scheduling.WholeGroups(config, log) if config.option.dist == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests that workers share."""
    if not hasattr(config, "workerinput"):
        return
    if scheduling.is_hard(config):
        scheduling.longest_hard_first(items, durations.recorded(durations.RECORDED_HARD))
    else:
        scheduling.longest_first(items, durations.recorded())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Add to a report what its phase started."""
    report = yield
    report.started = durations.take_starts()
    return report


def pytest_collection_finish() -> None:
    """From here on the collector looks at what tests make, and not at the tests: to look through
    those takes half a second, each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No actor alive and no descriptor leaked, whatever the test did."""
    before, left_out = leaks.open_descriptors(), len(bound.left_out)
    yield
    actors = leaks.leaked_actors()
    if len(bound.left_out) > left_out:
        return
    descriptors = leaks.leaked_descriptors(before)
    assert not actors, f"actors still alive: {actors}"
    assert not descriptors, f"descriptors still open: {descriptors}"


@pytest.fixture(autouse=True)
def logbook() -> Iterator[Logbook]:
    """What the test logged. A warning or error that nobody allowed fails the test:
    say `logbook.allow("its text")` in a test that provokes one."""
    book = Logbook()
    book.install()
    left_out = len(bound.left_out)
    yield book
    book.remove()
    if len(bound.left_out) > left_out:
        return
    unexpected = book.unexpected()
    assert not unexpected, "logged without being expected:\n" + "\n".join(unexpected)


@pytest.fixture(autouse=True)
def nothing_secret_is_said(logbook: Logbook) -> Iterator[None]:
    """No password and no token in anything that the node said to the test, or logged."""
    canaries.begin()
    yield
    for event in (*logbook.events, *logbook.refusals):
        canaries.heard(repr(event), "log")
    for line in logbook.loud:
        canaries.heard(line, "log")
    found = canaries.found()
    assert not found, "secrets were said:\n" + "\n".join(found[:5])


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """`figure("R8 bit flips", "10000, 0 wrong answers")`: a count printed at the end of the
    run, also from a worker process, so that a shrinking sweep shows."""

    def record(name: str, value: object) -> None:
        request.node.user_properties.append((FIGURE, f"{name}: {value}"))

    return record


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the figures that tests recorded, and how long each rig took."""
    reports = [
        report
        for some in terminalreporter.stats.values()
        for report in some
        if isinstance(report, pytest.TestReport)
    ]
    figures = sorted(
        str(value)
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name == FIGURE
    )
    hard = [report for report in reports if "hard" in report.keywords]
    profile = durations.profile(reports) if config.option.record_durations else []
    if profile and scheduling.is_hard(config):
        durations.record_hard(hard)
    elif profile:
        durations.record(reports)
    for title, lines in (
        ("figures", figures), ("rigs", hard and durations.by_rig(hard)), ("profile", profile),
    ):  # fmt: skip
        if lines:
            terminalreporter.section(title)
            for line in lines:
                terminalreporter.write_line(line)
