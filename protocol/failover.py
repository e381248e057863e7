"""Failover policies: their clauses, the bounds of each, and the encoding. All are required."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple

from protocol import binary, limits
from protocol.errors import BadRequest, Refusal, TooLarge
from protocol.text import format_duration

_URL: Final = re.compile(
    r"https?://(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_][A-Za-z0-9._-]{0,252})(?::([0-9]{1,5}))?/?"
)
_SECOND: Final = timedelta(seconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
LEASE: Final = (_SECOND * limits.LEASE_SECONDS_MIN, _SECOND * limits.LEASE_SECONDS_MAX)
BEHIND: Final = (
    timedelta(milliseconds=limits.BEHIND_MILLISECONDS_MIN),
    _SECOND * limits.BEHIND_SECONDS_MAX,
)
ACKS: Final = (0, limits.REPLICAS - 1)


Promotion = Literal["AUTO", "MANUAL"]


class Policy(NamedTuple):
    """A failover policy: election and acknowledgement settings."""

    via: tuple[str, ...]
    """URLs of the etcd servers."""
    lease: timedelta
    """Lease of a leader: time without contact after which it is deposed."""
    acks: int
    """Number of followers that must hold a commit before it is released."""
    behind: timedelta
    """Silence after which a follower leaves the in-sync replicas."""
    promote: Promotion
    """AUTO: a node takes the lead by itself; MANUAL: an operator decides."""

    @property
    def lease_seconds(self) -> int:
        """The lease in whole seconds."""
        return self.lease // _SECOND

    @property
    def behind_us(self) -> int:
        """BEHIND in microseconds of the monotonic clock."""
        return self.behind // _MICROSECOND

    @property
    def release_seconds(self) -> float:
        """Longest wait of a client for acknowledgements of followers, in seconds. By then a silent
        follower has left the in-sync replicas, or another node leads, if either is possible."""
        return max((self.lease + self.behind) / _SECOND, limits.RELEASE_SECONDS)


def packed(policy: Policy) -> bytes:
    """Encode a policy."""
    return binary.pack(clauses(policy))


def unpacked(value: bytes) -> Policy:
    """Decode the result of `packed`. :raises ValueError: it is something else"""
    try:
        return of_clauses(binary.unpack_object(value))
    except (KeyError, TypeError, Refusal) as error:
        raise ValueError(f"not a failover policy: {error}") from error


def clauses(policy: Policy) -> dict[str, Any]:
    """Return the fields of a policy's encoding."""
    return {
        "via": list(policy.via),
        "lease": policy.lease // _MICROSECOND,
        "acks": policy.acks,
        "behind": policy.behind // _MICROSECOND,
        "promote": policy.promote,
    }


def of_clauses(fields: dict[str, Any]) -> Policy:
    """Return the policy with the fields of `clauses`; others are ignored.

    :raises KeyError, TypeError: the fields are something else
    """
    return Policy(
        tuple(fields["via"]),
        fields["lease"] * _MICROSECOND,
        fields["acks"],
        fields["behind"] * _MICROSECOND,
        fields["promote"],
    )


def check_url(url: str) -> str:
    """Return the URL of an etcd server without its trailing slash.

    The error does not quote an invalid URL: it may contain a password.

    :raises BadRequest: not the URL of a server
    """
    found = _URL.fullmatch(url)
    if found is None or not 0 < int(found[1] or 1) < 65_536:
        raise BadRequest(
            "VIA takes addresses such as 'https://etcd1.example:2379', without a path, a"
            " user or a password"
        )
    return url.rstrip("/")


def check_policy(
    via: Sequence[str], lease: timedelta, acks: int, behind: timedelta
) -> tuple[str, ...]:
    """Return the addresses of VIA, each once. PROMOTE has two possible words and needs no check.

    :raises BadRequest: an address is invalid, or a clause is out of bounds
    :raises TooLarge: too many addresses
    """
    found = tuple(dict.fromkeys(map(check_url, via)))
    if len(found) > limits.FAILOVER_ADDRESSES:
        most = limits.FAILOVER_ADDRESSES
        raise TooLarge(f"VIA takes at most {most} addresses", limit=most)
    _check_within("LEASE", lease, LEASE)
    if lease % _SECOND:
        raise BadRequest("LEASE must be whole seconds")
    if not ACKS[0] <= acks <= ACKS[1]:
        raise BadRequest(f"ACKS must be {ACKS[0]} to {ACKS[1]} followers")
    _check_within("BEHIND", behind, BEHIND)
    return found


def _check_within(clause: str, value: timedelta, bounds: tuple[timedelta, timedelta]) -> None:
    least, most = bounds
    if not least <= value <= most:
        between = f"{format_duration(least)} to {format_duration(most)}"
        raise BadRequest(f"{clause} must be {between}, not {format_duration(value)}")
