"""What a failover policy may say. Each clause is needed, and each has bounds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Literal, NamedTuple

from protocol import limits
from protocol.errors import BadRequest, TooLarge
from protocol.text import format_duration

_URL: Final = re.compile(
    r"https?://(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_][A-Za-z0-9._-]{0,252})(?::([0-9]{1,5}))?/?"
)
_SECOND: Final = timedelta(seconds=1)
LEASE: Final = (_SECOND * limits.LEASE_SECONDS_MIN, _SECOND * limits.LEASE_SECONDS_MAX)
BEHIND: Final = (
    timedelta(milliseconds=limits.BEHIND_MILLISECONDS_MIN),
    _SECOND * limits.BEHIND_SECONDS_MAX,
)
ACKS: Final = (0, limits.REPLICAS - 1)


Promotion = Literal["AUTO", "MANUAL"]


class Policy(NamedTuple):
    """Who takes over, and what a commit waits for."""

    via: tuple[str, ...]
    """Where the nodes agree."""
    lease: timedelta
    """How long somebody leads who is not heard of any more."""
    acks: int
    """On how many followers everything is before it is shown."""
    behind: timedelta
    """How long a follower is waited for that says nothing."""
    promote: Promotion
    """Whether a node takes over by itself, or is told to."""

    @property
    def lease_seconds(self) -> int:
        """What a lease is counted in."""
        return self.lease // _SECOND

    @property
    def behind_us(self) -> int:
        """By the clock that is measured with."""
        return self.behind // timedelta(microseconds=1)

    @property
    def release_seconds(self) -> float:
        """How long somebody who asked waits at most for what others have to hold: who is silent is
        out of the set by then, or somebody else leads, if either can be."""
        return max((self.lease + self.behind) / _SECOND, limits.RELEASE_SECONDS)


def check_url(url: str) -> str:
    """Where agreement is reached; without the slash at its end.

    What is refused is not shown: it may hold a password.

    :raises BadRequest: it is no address of a server
    """
    found = _URL.fullmatch(url)
    if found is None or not 0 < int(found[1] or 1) < 65_536:
        raise BadRequest(
            "VIA takes addresses such as 'https://etcd1.example:2379', without a path, and never"
            " with a user or a password"
        )
    return url.rstrip("/")


def check_policy(
    via: Sequence[str], lease: timedelta, acks: int, behind: timedelta
) -> tuple[str, ...]:
    """The addresses of VIA, each once. PROMOTE has two words and needs no check.

    :raises BadRequest: of an address, or a clause is out of its bounds
    :raises TooLarge: too many addresses
    """
    found = tuple(dict.fromkeys(map(check_url, via)))
    if len(found) > limits.FAILOVER_ADDRESSES:
        most = limits.FAILOVER_ADDRESSES
        raise TooLarge(f"VIA takes at most {most} addresses", limit=most)
    _check_within("LEASE", lease, LEASE)
    if lease % _SECOND:
        raise BadRequest("LEASE is whole seconds: that is what a lease is counted in")
    if not ACKS[0] <= acks <= ACKS[1]:
        raise BadRequest(f"ACKS is {ACKS[0]} to {ACKS[1]} followers")
    _check_within("BEHIND", behind, BEHIND)
    return found


def _check_within(clause: str, value: timedelta, bounds: tuple[timedelta, timedelta]) -> None:
    least, most = bounds
    if not least <= value <= most:
        between = f"{format_duration(least)} to {format_duration(most)}"
        raise BadRequest(f"{clause} is {between}, not {format_duration(value)}")
