"""Password hashing: slow on purpose, so on threads, as many at once as there are cores.

argon2id in the form of PHC strings. Asking is `Passwords`; the actors behind it see plain passwords
and keep none.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError
from argon2.low_level import Type, hash_secret

from actors.runtime import Runtime, Supervised, ThreadActor, ask, handles, stop
from protocol import limits
from protocol.doors import Rng
from protocol.errors import BadRequest, Busy
from protocol.requests import Reply, Request

SALT_BYTES: Final = 16
PASSHASH_MEMORY_KIB_MAX: Final = 256 * 1024
PASSHASH_PASSES_MAX: Final = 16
PASSHASH_LANES_MAX: Final = 8
"""Of a hash that somebody brings: what it costs is paid at each sign-in."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Parameters of argon2id. The default is the least the node accepts for people."""

    memory_kib: int = 19 * 1024
    passes: int = 2
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Hash(Request[str]):
    """Make a PHC string of a password."""

    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verification found."""

    matches: bool
    renewed: str | None
    """A hash with today's parameters, when the stored one had lesser ones."""


@dataclass(frozen=True, slots=True)
class Verify(Request[Verdict]):
    """Compare a password with a stored hash. None stands for a user that does not exist: it costs
    the same time."""

    password: str = field(repr=False)
    passhash: str | None = field(repr=False)


class PasswordActor(ThreadActor):
    """One thread that hashes."""

    def __init__(self, runtime: Runtime, rng: Rng, cost: Cost) -> None:
        super().__init__(runtime)
        self._rng = rng
        self._cost = cost
        self._hasher = PasswordHasher(cost.passes, cost.memory_kib, cost.lanes, type=Type.ID)
        self._nobody = ""

    def on_start(self) -> None:
        """Have the hash of nobody ready, so that the first unknown user takes no longer."""
        self._nobody = self._hash("a user that does not exist")

    @handles(Hash)
    def hash(self, message: Hash) -> str:
        """Hash with a salt from the node's randomness."""
        return self._hash(message.password)

    @handles(Verify)
    def verify(self, message: Verify) -> Verdict:
        """Verify, against a hash of nothing in particular when there is no user."""
        if message.passhash is None:
            self._matches(self._nobody, message.password)
            return Verdict(False, None)
        if not self._matches(message.passhash, message.password):
            return Verdict(False, None)
        if self._is_weaker(message.passhash):
            return Verdict(True, self._hash(message.password))
        return Verdict(True, None)

    def _is_weaker(self, passhash: str) -> bool:
        """Whether a hash costs less than the node's own. One that costs more, which somebody
        brought with PASSHASH, stays."""
        found, cost = extract_parameters(passhash), self._cost
        return found.memory_cost < cost.memory_kib or found.time_cost < cost.passes

    def _hash(self, password: str) -> str:
        cost = self._cost
        salt = self._rng.bytes(SALT_BYTES)
        secret = password.encode("utf-8", "surrogatepass")
        encoded = hash_secret(secret, salt, cost.passes, cost.memory_kib, cost.lanes, 32, Type.ID)
        return encoded.decode("ascii")

    def _matches(self, passhash: str, password: str) -> bool:
        try:
            return self._hasher.verify(passhash, password.encode("utf-8", "surrogatepass"))
        except (VerifyMismatchError, VerificationError, InvalidHashError):
            return False


class Passwords:
    """As many hashing threads as cores, and a bounded number of waiting requests.

    :param cores: how many hash at once
    """

    def __init__(self, runtime: Runtime, rng: Rng, cores: int, cost: Cost | None = None) -> None:
        self._rng = rng
        self._limit = cores + limits.HASH_QUEUE
        self._waiting = [0] * cores
        cost = cost or Cost()
        self.actors: list[Supervised[Any]] = [
            Supervised(lambda: PasswordActor.start(runtime, rng, cost), refoldable=True)
            for _ in range(cores)
        ]

    def hash(self, password: str) -> asyncio.Future[str]:
        """A PHC string. :raises BadRequest: its length :raises Busy:"""
        check_password(password)
        return asyncio.ensure_future(self._ask(Hash(password)))

    def verify(self, password: str, passhash: str | None) -> asyncio.Future[Verdict]:
        """Whether a password is the one of a hash; None is a user that does not exist.

        :raises Busy: too many wait already
        """
        if len(password) > limits.PASSWORD_CHARACTERS_MAX:
            password, passhash = "", None  # no stored hash is of one so long
        return asyncio.ensure_future(self._ask(Verify(password, passhash)))

    async def _ask(self, request: Request[Reply]) -> Reply:
        if sum(self._waiting) >= self._limit:
            raise Busy(f"{limits.HASH_QUEUE} passwords wait to be hashed")
        at = min(range(len(self._waiting)), key=self._waiting.__getitem__)
        self._waiting[at] += 1
        try:
            return await ask(self.actors[at].ref, request)
        finally:
            self._waiting[at] -= 1

    async def stop(self) -> None:
        """Stop the threads after the hash each is at."""
        for place in self.actors:
            await stop(place.ref)


def check_password(password: str) -> None:
    """:raises BadRequest: it is shorter or longer than passwords may be"""
    least, most = limits.PASSWORD_CHARACTERS_MIN, limits.PASSWORD_CHARACTERS_MAX
    if not least <= len(password) <= most:
        raise BadRequest(f"a password has {least} to {most} characters, this one {len(password)}")


def check_passhash(passhash: str) -> str:
    """The hash itself.

    :raises BadRequest: it is no argon2id PHC string, a weaker one than the node makes, or one that
        would cost more memory or time than a sign-in may
    """
    try:
        found = extract_parameters(passhash)
    except InvalidHashError:
        found = None
    least = Cost()
    if (
        found is None
        or found.type is not Type.ID
        or not least.memory_kib <= found.memory_cost <= PASSHASH_MEMORY_KIB_MAX
        or not least.passes <= found.time_cost <= PASSHASH_PASSES_MAX
        or not least.lanes <= found.parallelism <= PASSHASH_LANES_MAX
    ):
        raise BadRequest(
            f"PASSHASH is an argon2id PHC string, m={least.memory_kib}…{PASSHASH_MEMORY_KIB_MAX},"
            f" t={least.passes}…{PASSHASH_PASSES_MAX}, p={least.lanes}…{PASSHASH_LANES_MAX}"
        )
    return passhash
