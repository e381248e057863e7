"""Known faults of the etcd releases that a cluster may use.

Listed are only faults that can break a guarantee of the cluster and are fixed in a later release,
so that the operator can upgrade.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

Release = tuple[int, int, int]


class Fault(NamedTuple):
    """A fault, and the releases that fix it."""

    what: str
    issue: int
    """Issue number in etcd-io/etcd."""
    mended: tuple[Release, ...]
    """First fixed release of each release line that has the fault."""


LEAST: Final = (3, 4, 0)
FAULTS: Final = (
    Fault(
        "a leader that hangs answers renewals, and may end leases that the next leader renewed",
        15247,
        ((3, 4, 31), (3, 5, 13)),
    ),
    Fault(
        "its revision may go back if it is killed during a compaction",
        17780,
        ((3, 4, 32), (3, 5, 14)),
    ),
    Fault(
        "its members may diverge for ever after one of them was killed",
        13766,
        ((3, 5, 3),),
    ),
)
_NUMBERS: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})")


def known(said: object) -> tuple[str, ...]:
    """Return the known faults of a release, in words for an operator; none if the version can't be
    parsed.

    :param said: version as etcd reports it: `3.4.23`
    """
    numbers = _NUMBERS.match(said) if isinstance(said, str) else None
    if numbers is None:
        return ()
    version = numbers[0]
    release = int(numbers[1]), int(numbers[2]), int(numbers[3])
    if release < LEAST:
        return (f"etcd {version} is older than any release that was tested",)
    return tuple(
        f"etcd {version}: {fault.what} (issue {fault.issue}; fixed in {_shown(fault.mended)})"
        for fault in FAULTS
        if _has(release, fault)
    )


def _has(release: Release, fault: Fault) -> bool:
    return any(release[:2] == mended[:2] and release < mended for mended in fault.mended)


def _shown(releases: tuple[Release, ...]) -> str:
    return " and ".join(".".join(map(str, each)) for each in releases)
