"""Standard streams that are closed, and the limit on open files."""

from __future__ import annotations

import subprocess
import sys

import pytest

from protocol import limits
from surfaces.command import descriptors

RAISE = """
import resource
from surfaces.command import descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
answered = descriptors.raise_limit()
assert answered == resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256, answered
"""

KEEP = """
import os, sys
for number in {closed}:
    os.close(number)
from surfaces.command import descriptors
descriptors.keep_standard_streams()
opened = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
os._exit(0 if opened > 2 and all(os.readlink(f"/proc/self/fd/{{n}}") for n in (0, 1, 2)) else 1)
"""


def test_limit_is_raised() -> None:
    subprocess.run([sys.executable, "-c", RAISE], check=True)


@pytest.mark.parametrize(
    ("limit", "connections"),
    [(256, 128), (1024, 512), (4096, 3584), (descriptors.NEEDED, descriptors.NEEDED - 512)],
)
def test_connections_leave_some_to_log_and_state(limit: int, connections: int) -> None:
    assert descriptors.for_connections(limit) == connections


def test_the_ceilings_are_reached_where_the_limit_allows_them() -> None:
    assert descriptors.for_connections(descriptors.NEEDED) > 2 * limits.CONNECTIONS + 1024


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path: object) -> None:
    for closed in ("(2,)", "(0,)", "(1, 2)", "(0, 1, 2)"):
        code = KEEP.format(closed=closed)
        subprocess.run([sys.executable, "-c", code, f"{tmp_path}/segment"], check=True)
