"""Password hashing: slow on purpose, so on threads, as many at once as there are cores.

argon2id in the form of PHC strings. Asking is `Passwords`; the actors behind it see plain passwords
and keep none.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, Final

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError
from argon2.low_level import Type, hash_secret

from actors.runtime import Runtime, Supervised, ThreadActor, ask, handles
from actors.sign_in_throttle import Rank
from protocol import limits
from protocol.doors import Rng
from protocol.errors import BadRequest, Busy, Draining
from protocol.requests import Request
from storage.vault_seals import Stretch, stretched

SALT_BYTES: Final = 16


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
class Derive(Request[bytearray]):
    """Make the wrapping key of a vault's passphrase."""

    passphrase: str = field(repr=False)
    salt: bytes
    stretch: Stretch


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
    """One thread that hashes. It gives way: a flood of passwords would take every core from those
    who have signed in."""

    gives_way = True

    def __init__(self, runtime: Runtime, rng: Rng, cost: Cost) -> None:
        super().__init__(runtime)
        self._rng = rng
        self._cost = cost
        self._hasher = PasswordHasher(cost.passes, cost.memory_kib, cost.lanes, type=Type.ID)
        self._nobody = ""

    def on_start(self) -> None:
        """Have the hash of nobody ready: it takes as long to look at as any, none to make, and no
        password is known to be its own."""
        cost, salt = self._cost, self._rng.bytes(SALT_BYTES)
        self._nobody = "$".join(
            (
                f"$argon2id$v=19$m={cost.memory_kib},t={cost.passes},p={cost.lanes}",
                *(b64encode(one).decode().rstrip("=") for one in (salt, sha256(salt).digest())),
            )
        )

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

    @handles(Derive)
    def derive(self, message: Derive) -> bytearray:
        """Stretch a passphrase.

        :raises WrongKey: with parameters that nobody here has stored
        :raises Busy: there is not the memory for it now
        """
        try:
            return stretched(message.passphrase, message.salt, message.stretch)
        except MemoryError as error:
            raise Busy("there is no memory for a passphrase now") from error

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


@dataclass(frozen=True, slots=True)
class Asker:
    """On whose account a password is hashed."""

    user: str
    network: str = "local"
    """Where the request came from."""
    rank: Rank = Rank.KNOWN


HOUSE: Final = Asker("")
"""The node itself."""


@dataclass(slots=True, eq=False)
class _Job:
    request: Hash | Verify | Derive
    asker: Asker
    lanes: tuple[str, ...]
    """Of each, one job is under way at once."""
    reply: asyncio.Future[Any]


class Passwords:
    """As many hashing threads as cores, and a bounded line before them.

    One hash at a time for each user, stored or not, so that an expensive one, or many tries, leave
    the other threads to others; and one at a time that takes much memory, as passphrases do. The
    line is shared out between the addresses that ask, in turn; who is known goes first, but for
    every fourth time.

    :param cores: how many hash at once
    """

    def __init__(self, runtime: Runtime, rng: Rng, cores: int, cost: Cost | None = None) -> None:
        self._runtime = runtime
        cost = cost or Cost()
        self.actors: list[Supervised[Any]] = [
            Supervised(lambda: PasswordActor.start(runtime, rng, cost), refoldable=True)
            for _ in range(cores)
        ]
        self._free = list(self.actors)
        self._lanes: set[str] = set()
        self._waiting: dict[tuple[Rank, str], deque[_Job]] = {}
        """By whose turn it is; each network moves to the end when it has had its turn."""
        self._turns = 0
        self._has_stopped = False

    def hash(self, password: str, asker: Asker = HOUSE) -> asyncio.Future[str]:
        """A PHC string. :raises BadRequest: its length :raises Busy:"""
        check_password(password)
        return self._ask(Hash(password), asker, _lanes(asker, None))

    def verify(
        self, password: str, passhash: str | None, asker: Asker = HOUSE
    ) -> asyncio.Future[Verdict]:
        """Whether a password is the one of a hash; None is a user that does not exist.

        :raises Busy: too many wait already
        """
        if len(password) > limits.PASSWORD_CHARACTERS_MAX:
            password, passhash = "", None  # no stored hash is of one so long
        return self._ask(Verify(password, passhash), asker, _lanes(asker, passhash))

    def derive(
        self, passphrase: str, salt: bytes, stretch: Stretch, asker: Asker
    ) -> asyncio.Future[bytearray]:
        """The wrapping key of a passphrase. One at a time, or OpenSSL's threads for two wait for
        each other for ever: `docs/decisions/passphrases-one-at-a-time.md`.

        :raises Busy: too many wait already
        """
        lanes = (f"user {asker.user}", "much memory")
        return self._ask(Derive(passphrase, salt, stretch), asker, lanes)

    def _ask(
        self, request: Hash | Verify | Derive, asker: Asker, lanes: tuple[str, ...]
    ) -> asyncio.Future[Any]:
        reply: asyncio.Future[Any] = self._runtime.loop.create_future()
        if self._has_stopped:
            reply.set_exception(Draining("the node is stopping"))
            return reply
        job = _Job(request, asker, lanes, reply)
        self._waiting.setdefault((asker.rank, asker.network), deque()).append(job)
        self._begin()
        self._bound()
        return reply

    def _begin(self) -> None:
        """Give what may begin to threads that have nothing to do."""
        while self._free and (job := self._next()) is not None:
            place = self._free.pop()
            self._lanes.update(job.lanes)
            # `Busy` of its mailbox can't be: it has nothing to do.
            asked: asyncio.Future[Any] = ask(place.ref, job.request)
            asked.add_done_callback(partial(self._ended, job, place))

    def _ended(self, job: _Job, place: Supervised[Any], asked: asyncio.Future[Any]) -> None:
        self._free.append(place)
        self._lanes.difference_update(job.lanes)
        error = asked.exception()
        if not job.reply.done():
            if error is None:
                job.reply.set_result(asked.result())
            else:
                job.reply.set_exception(error)
        self._begin()

    def _next(self) -> _Job | None:
        """Take the next job whose lanes are free."""
        # Every fourth time the others go first: who is known could take all of it otherwise. A look
        # that finds nothing, for the lanes are taken, is no turn of anybody's.
        worst_first = self._turns % 4 == 3
        for at in sorted(self._waiting, key=lambda at: at[0], reverse=worst_first):
            jobs = self._waiting[at]
            for job in jobs:
                if job.reply.done() or self._lanes.isdisjoint(job.lanes):
                    break
            else:
                continue
            jobs.remove(job)
            del self._waiting[at]
            if jobs:
                self._waiting[at] = jobs
            if job.reply.done():
                return self._next()
            self._turns += 1
            return job
        return None

    def _bound(self) -> None:
        """With too many in the line the newest of those who hold most of it hears `Busy`."""
        if sum(map(len, self._waiting.values())) > limits.HASH_QUEUE:
            most = max(self._waiting, key=lambda at: (len(self._waiting[at]), at[0]))
            job = self._waiting[most].pop()
            if not self._waiting[most]:
                del self._waiting[most]
            if not job.reply.done():
                refusal = Busy(f"{limits.HASH_QUEUE} passwords wait to be hashed")
                job.reply.set_exception(refusal)

    async def stop(self) -> None:
        """Stop the threads after the hash each is at; what waits hears `Draining`."""
        self._has_stopped = True
        for jobs in self._waiting.values():
            for job in jobs:
                if not job.reply.done():
                    job.reply.set_exception(Draining("the node is stopping"))
        self._waiting.clear()
        for place in self.actors:
            await place.stop()


def _lanes(asker: Asker, passhash: str | None) -> tuple[str, ...]:
    own = f"user {asker.user}"
    if passhash is None or _memory_kib(passhash) <= limits.PASSHASH_MEMORY_KIB_OF_SPACE:
        return (own,)
    return (own, "much memory")


def _memory_kib(passhash: str) -> int:
    try:
        return extract_parameters(passhash).memory_cost
    except InvalidHashError:
        return 0


def check_password(password: str) -> None:
    """:raises BadRequest: it is shorter or longer than passwords may be"""
    least, most = limits.PASSWORD_CHARACTERS_MIN, limits.PASSWORD_CHARACTERS_MAX
    if not least <= len(password) <= most:
        raise BadRequest(f"a password has {least} to {most} characters, this one {len(password)}")


def check_passhash(passhash: str, space: str | None = None) -> str:
    """The hash itself.

    :param space: of the owner who brings it; None: of the whole store
    :raises BadRequest: it is no argon2id PHC string, a weaker one than the node makes, or one that
        would cost more memory or time than a sign-in may
    """
    try:
        found = extract_parameters(passhash)
    except InvalidHashError:
        found = None
    least, most, work_kib = Cost(), _MOST, limits.PASSHASH_WORK_KIB
    if space is not None:
        most, work_kib = _MOST_OF_SPACE, _MOST_OF_SPACE.memory_kib * _MOST_OF_SPACE.passes
    if (
        found is None
        or found.type is not Type.ID
        or not least.memory_kib <= found.memory_cost <= most.memory_kib
        or not least.passes <= found.time_cost <= most.passes
        or not least.lanes <= found.parallelism <= most.lanes
        or found.memory_cost * found.time_cost > work_kib
    ):
        raise BadRequest(
            f"PASSHASH is an argon2id PHC string, m={least.memory_kib}…{most.memory_kib},"
            f" t={least.passes}…{most.passes}, p={least.lanes}…{most.lanes},"
            f" m·t at most {work_kib}"
        )
    return passhash


_MOST: Final = Cost(limits.PASSHASH_MEMORY_KIB, limits.PASSHASH_PASSES, limits.PASSHASH_LANES)
_MOST_OF_SPACE: Final = Cost(
    limits.PASSHASH_MEMORY_KIB_OF_SPACE,
    limits.PASSHASH_PASSES_OF_SPACE,
    limits.PASSHASH_LANES_OF_SPACE,
)
