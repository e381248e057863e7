"""Password hashing with argon2id, deliberately slow: on threads, one hash per core at a time.

Hashes are PHC strings. `Passwords` is the interface. The actors behind it see plain passwords and
keep none.
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
from actors.sign_in_throttle import HashPriority
from protocol import limits
from protocol.environment import Rng
from protocol.errors import BadRequest, Busy, Draining
from protocol.requests import Request
from storage.vaults.cipher import Argon2Parameters, stretched

SALT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Cost:
    """Parameters of argon2id. The defaults are the minimum that the node accepts for users."""

    memory_kib: int = 19 * 1024
    passes: int = 2
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Hash(Request[str]):
    """Hash a password into a PHC string."""

    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Derive(Request[bytearray]):
    """Derive the wrapping key from a vault's passphrase."""

    passphrase: str = field(repr=False)
    salt: bytes
    stretch: Argon2Parameters


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a verification."""

    matches: bool
    renewed: str | None
    """Hash with the current parameters, if the stored one has weaker ones; else None."""


@dataclass(frozen=True, slots=True)
class Verify(Request[Verdict]):
    """Compare a password with a stored hash. None stands for an unknown user and takes equally
    long."""

    password: str = field(repr=False)
    passhash: str | None = field(repr=False)


class PasswordActor(ThreadActor):
    """Thread that hashes, at low priority: a flood of passwords must not take every core from
    signed-in users."""

    low_priority = True

    def __init__(self, runtime: Runtime, rng: Rng, cost: Cost) -> None:
        super().__init__(runtime)
        self._rng = rng
        self._cost = cost
        self._hasher = PasswordHasher(cost.passes, cost.memory_kib, cost.lanes, type=Type.ID)
        self._nobody = ""

    def on_start(self) -> None:
        """Prepare the hash for unknown users.

        It takes as long to verify as any other, takes no time to make, and has no known password.
        """
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
        """Verify a password; for an unknown user verify against a dummy hash, to take the same
        time."""
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
        """Derive a wrapping key from a passphrase.

        :raises WrongKey: the parameters are not ones that this node stores
        :raises Busy: not enough memory at the moment
        """
        try:
            return stretched(message.passphrase, message.salt, message.stretch)
        except MemoryError as error:
            raise Busy("there is not enough memory to check a passphrase now: try again") from error

    def _is_weaker(self, passhash: str) -> bool:
        """True if a hash is cheaper than the node's own. A costlier one, imported with PASSHASH,
        stays."""
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
class HashRequester:
    """Requester of a hash, for fair queuing."""

    user: str
    network: str = "local"
    """Network that the request came from."""
    rank: HashPriority = HashPriority.KNOWN


HOUSE: Final = HashRequester("")
"""The node itself."""


@dataclass(slots=True, eq=False)
class _Job:
    request: Hash | Verify | Derive
    asker: HashRequester
    lanes: tuple[str, ...]
    """Names of exclusive lanes: of each, one job runs at a time."""
    reply: asyncio.Future[Any]


class Passwords:
    """Hashing threads, one per core, behind a bounded queue.

    Per user, known or not, one hash runs at a time, so that a costly hash or many attempts leave
    the other threads free. Costly hashes in memory, such as passphrases, run one at a time in all.
    The queue serves networks round-robin. Known users go first, except every fourth time.

    :param cores: number of threads
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
        self._waiting: dict[tuple[HashPriority, str], deque[_Job]] = {}
        """Waiting jobs by rank and network; a network moves to the end when it has been served."""
        self._turns = 0
        self._has_stopped = False

    def hash(self, password: str, asker: HashRequester = HOUSE) -> asyncio.Future[str]:
        """Hash a password into a PHC string. :raises BadRequest: its length :raises Busy:"""
        check_password(password)
        return self._ask(Hash(password), asker, _lanes(asker, None))

    def verify(
        self, password: str, passhash: str | None, asker: HashRequester = HOUSE
    ) -> asyncio.Future[Verdict]:
        """Verify a password against a hash; None is the hash of an unknown user.

        :raises Busy: too many passwords wait already
        """
        if len(password) > limits.PASSWORD_CHARACTERS_MAX:
            password, passhash = "", None  # no stored password is so long
        return self._ask(Verify(password, passhash), asker, _lanes(asker, passhash))

    def derive(
        self, passphrase: str, salt: bytes, stretch: Argon2Parameters, asker: HashRequester
    ) -> asyncio.Future[bytearray]:
        """Derive the wrapping key of a passphrase.

        Only one derivation runs at a time: OpenSSL's threads for two of them can deadlock, see
        `docs/decisions/passphrases-one-at-a-time.md`.

        :raises Busy: too many passwords wait already
        """
        lanes = (f"user {asker.user}", "much memory")
        return self._ask(Derive(passphrase, salt, stretch), asker, lanes)

    def _ask(
        self, request: Hash | Verify | Derive, asker: HashRequester, lanes: tuple[str, ...]
    ) -> asyncio.Future[Any]:
        reply: asyncio.Future[Any] = self._runtime.loop.create_future()
        if self._has_stopped:
            reply.set_exception(Draining("the node is stopping"))
            return reply
        job = _Job(request, asker, lanes, reply)
        self._waiting.setdefault((asker.rank, asker.network), deque()).append(job)
        self._start_waiting()
        self._bound()
        return reply

    def _start_waiting(self) -> None:
        """Start waiting jobs on idle threads."""
        while self._free and (job := self._next()) is not None:
            place = self._free.pop()
            self._lanes.update(job.lanes)
            # An idle actor's mailbox is empty, so it can't be `Busy`.
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
        self._start_waiting()

    def _next(self) -> _Job | None:
        """Remove and return the next job whose lanes are free."""
        # Every fourth time the lowest ranks go first, or known users could starve them. A call that
        # finds no free lane does not count as a turn.
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
        """Refuse with `Busy` the newest job of the longest queue, if too many wait."""
        if sum(map(len, self._waiting.values())) > limits.HASH_QUEUE:
            most = max(self._waiting, key=lambda at: (len(self._waiting[at]), at[0]))
            job = self._waiting[most].pop()
            if not self._waiting[most]:
                del self._waiting[most]
            if not job.reply.done():
                refusal = Busy(
                    f"too many passwords wait to be hashed: the limit is {limits.HASH_QUEUE}"
                )
                job.reply.set_exception(refusal)

    async def stop(self) -> None:
        """Stop the threads after their current hash; waiting jobs fail with `Draining`."""
        self._has_stopped = True
        for jobs in self._waiting.values():
            for job in jobs:
                if not job.reply.done():
                    job.reply.set_exception(Draining("the node is stopping"))
        self._waiting.clear()
        for place in self.actors:
            await place.stop()


def _lanes(asker: HashRequester, passhash: str | None) -> tuple[str, ...]:
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
    """Check the length of a password. :raises BadRequest: it is too short or too long"""
    least, most = limits.PASSWORD_CHARACTERS_MIN, limits.PASSWORD_CHARACTERS_MAX
    if not least <= len(password) <= most:
        raise BadRequest(f"a password has {least} to {most} characters, this one {len(password)}")


def check_passhash(passhash: str, space: str | None = None) -> str:
    """Check a PHC string that a client brings, and return it.

    :param space: place of the owner that brings it; None: the whole store
    :raises BadRequest: it is not an argon2id PHC string, is weaker than the node's hashes, or costs
        more memory or time than a sign-in may
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
