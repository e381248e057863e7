"""`rand::…` functions, from the transaction's random number generator."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from language.env import Env
from language.functions.table import function
from protocol.environment import Rng
from protocol.errors import BadRequest
from protocol.values import MICROSECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def uuid7(now: datetime, rng: Rng) -> UUID:
    """Return a UUID of version 7 (RFC 9562): a timestamp of 48 bits in milliseconds, 6 fixed bits,
    the rest random."""
    milliseconds = (now - _EPOCH) // MICROSECOND // 1000
    drawn = int.from_bytes(rng.bytes(10), "big")
    number = (milliseconds & (1 << 48) - 1) << 80 | drawn
    number = number & ~(0xF << 76) | 7 << 76
    return UUID(int=number & ~(3 << 62) | 2 << 62)


@function("rand::uuid", result="uuid", env=True, fixed=False)
def uuid(env: Env) -> UUID:
    """New UUID of version 7, ordered by time."""
    return uuid7(env.now, env.rng)


@function("rand::int", "int", "int", result="int", env=True, fixed=False)
def int_(env: Env, low: int, high: int) -> int:
    """Uniformly random int from low to high, both inclusive."""
    if low > high:
        raise BadRequest(f"rand::int takes bounds in order, not {low} and {high}")
    return low + env.rng.below(high - low + 1)
