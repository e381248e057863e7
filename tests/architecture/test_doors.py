"""Time, randomness and files reach the node through the doors only.

A simulated node runs from one seed exactly as long as this holds.
"""

from __future__ import annotations

import re

import pytest

from tests.architecture.sources import ROOMS, Source, called, files

PAST_THE_DOORS = re.compile(
    r"""
      (.*\.)?(datetime|date)\.(now|utcnow|today)      # the wall clock
    | (uuid\.)?uuid[14]                               # randomness, and a clock
    | (.*\.)?(urandom|getrandbits|SystemRandom)
    | open | input | print                            # files and the terminal
    | (.*\.)?(read_text|read_bytes|write_text|write_bytes)
    | time\.\w+ | random\.\w+ | secrets\.\w+
    """,
    re.VERBOSE,
)

DOORS = (
    "storage/files/disk.py",
    "storage/files/disk.py",
    "storage/files/disk.py",
    "actors/environment.py",
    "surfaces/http/console.py",  # reads pages that are part of the package, once, when imported
    "surfaces/command/",  # the process itself, outside of every simulation
    "surfaces/shell/",  # processes that are clients of a node, likewise
)


def violations(source: Source) -> list[str]:
    """Calls of a file that go past the doors."""
    if source.path.startswith(DOORS):
        return []
    return [
        f"{source.path}:{line} calls {name}"
        for line, name in called(source)
        if PAST_THE_DOORS.fullmatch(name)
    ]


def test_nothing_goes_past_the_doors() -> None:
    found = [line for source in files(*ROOMS) for line in violations(source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "uuid.uuid4()",
        "x = [uuid4() for _ in y]",
        "os.urandom(8)",
        "open('f')",
        "time.monotonic()",
        "path.read_text()",
        "print('here')",
    ],
)
def test_planted_call_is_caught(text: str) -> None:
    assert len(violations(Source("actors/planted.py", text))) == 1
    assert violations(Source("actors/environment.py", text)) == []


@pytest.mark.parametrize("text", ["clock.wall_us()", "fs.open('f')", "self.now()", "loop.time()"])
def test_honest_call_is_not(text: str) -> None:
    assert violations(Source("actors/planted.py", text)) == []
