"""The throttle of sign-ins: failures are answered late, and everybody's turn comes.

A failure is answered late, by from which address and for which user it was: from 0.1 s to 5 s, and
up to 30 s from the hundredth failure of the two in an hour on. That slows those down who wait for
their answers, and nobody else. What bounds guessing is how often passwords are looked at: a few at
once of one user from one address, and past the hundred failures so many a second
(`limits.SIGN_INS_A_SECOND`), whether who asked waits for the answer or not.

Nobody can tell the owner of a password from somebody who guesses it from the same address before
it has been looked at. So none is refused unseen to make room for another: sign-ins wait in line,
first come first served, and are looked at in their turn. With n of them before it the right one is
let in after n / `limits.SIGN_INS_A_SECOND` seconds. Who gives up leaves the line, so coming again
and again brings nobody forward, and pushes nobody back.

Invariants:

- Failures leak away, one every 36 s. So a counter costs memory only while somebody keeps it up, and
  TRIES counters can be kept up only by 270 failures a second, more than a few processors hash.
  Should it be done all the same, the lowest counters go: of made-up names with a failure each, not
  those that matter.
- A line costs memory only while its requests are there, which are bounded where they come in.
- Who is *known*, that is, has brought a right password from an address, is never forgotten for what
  failed: only right ones are remembered, and push out only right ones. It does not wait for those
  of its address who are not.
- Who is *proven* waits in no line: it has nothing to guess. The first wrong one ends that.
- Nothing here tells whether there is such a user: a name is a name.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from protocol import limits
from protocol.doors import Clock, Rng
from protocol.errors import Cancelled, Draining, Refusal, TooManyTries
from protocol.requests import stays

_SECOND_US: Final = 1_000_000
FAILURE_US: Final = 3600 * _SECOND_US // limits.SIGN_IN_FAILURES_AN_HOUR
"""What one failure adds to a counter, which empties as time goes."""
DELAY_FIRST_US: Final = _SECOND_US // 10
DELAY_US: Final = 5 * _SECOND_US
"""What doubling it comes to; times the hundreds of failures where there are so many."""
DELAY_MOST_US: Final = 30 * _SECOND_US
TRIES: Final = 10_000
LOOK_SECONDS: Final = 1
KNOWN_NETWORKS: Final = 16
"""Of one user; and the networks and users that are known at all:"""
KNOWN: Final = 10_000

After = Callable[[float, Callable[[], None]], object]
"""Have something done after so many seconds."""


class Rank(IntEnum):
    """Who is let to the hashing first."""

    PROVEN = 0
    """This session has brought what is asked for before, and nothing wrong since."""
    KNOWN = 1
    """This user has signed in from there."""
    KNOWN_NETWORK = 2
    """Somebody has."""
    UNKNOWN = 3


def network(address: str) -> str:
    """Where a peer comes from: its address without the port, of IPv6 the part that one site has to
    itself. What is no address stays as it is."""
    host = address.rpartition(":")[0] or address
    try:
        found = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is None:
            return str(ip_network((found, 64), strict=False))
        found = found.ipv4_mapped
    return str(found)


@dataclass(slots=True)
class _Counter:
    """Failures of one user from one network, or of a network."""

    key: bytes
    empty_us: int = 0
    """When the failures will have leaked away, if none is added."""
    in_a_row: int = 0
    under_way: int = 0
    places: int = 0
    """Taken by sign-ins that are being looked at, and by those of this moment that were."""
    waiting: deque[Try] = field(default_factory=deque)

    def failures(self, now_us: int) -> int:
        return max(0, -((now_us - self.empty_us) // FAILURE_US))

    def add(self, now_us: int) -> None:
        self.empty_us = max(self.empty_us, now_us) + FAILURE_US
        self.in_a_row += 1

    @property
    def idle(self) -> bool:
        return not (self.under_way or self.places)


class SignInThrottle:
    """The counters of one node; on the loop only.

    :param after: sets a timer that ends with whoever owns this
    """

    def __init__(self, clock: Clock, rng: Rng, after: After) -> None:
        self._monotonic_us = clock.monotonic_us
        self._secret = rng.bytes(32)
        self._after = after
        self._counters: dict[bytes, _Counter] = {}
        self._held: dict[asyncio.Future[None], None] = {}
        self._is_draining = False
        self._waiting = 0
        self._looks = False
        """True if a look after those whose askers are gone is due."""
        self.known = Known()

    def __len__(self) -> int:
        return len(self._counters)

    async def begin(
        self,
        user: str,
        address: str,
        *,
        proven: bool = False,
        is_gone: Callable[[], bool] = stays,
    ) -> Try:
        """Let somebody try a password, now or in its turn; `Try.end` must follow.

        :param proven: whether it is to be ranked so
        :param is_gone: true once nobody waits for the answer
        :raises Cancelled: so it was
        :raises TooManyTries: its turn has not come for long, with so many before it
        """
        at = network(address)
        rank = Rank.PROVEN if proven else self.known.rank(user, at)
        of_pair, of_network = self._counter(f"{len(at)}:{at}:{user}"), self._counter(at)
        gate = of_network if rank > Rank.KNOWN else self._counter(f"known:{at}")
        found = Try(self, user, at, rank, (of_pair, of_network, gate), is_gone)
        if proven:
            return found
        try:
            await self._take_place(found, of_pair, limits.SIGN_INS_AT_ONCE)
            await self._take_place(found, gate, limits.SIGN_INS_OF_ADDRESS)
        except BaseException:
            found.end()
            raise
        return found

    async def _take_place(self, one: Try, counter: _Counter, most: int) -> None:
        if counter.places < most and not counter.waiting:
            counter.places += 1
            one.take(counter, self._monotonic_us())
            return
        if self._waiting >= limits.SIGN_INS_WAITING:
            raise _too_many()
        place = one.place = asyncio.get_running_loop().create_future()
        counter.waiting.append(one)
        self._waiting += 1
        if not self._looks:
            self._looks = True
            self._after(LOOK_SECONDS, self._look_for_gone)
        try:
            async with asyncio.timeout(limits.SIGN_IN_WAIT_SECONDS):
                await place
        except TimeoutError:
            raise _too_many() from None
        finally:
            self._waiting -= 1
            if place.cancelled():
                if one in counter.waiting:
                    counter.waiting.remove(one)
            elif place.exception() is None:
                one.take(counter, self._monotonic_us())  # to be given back, also where it is late

    def _look_for_gone(self) -> None:
        """Have those leave the lines whose askers are gone, now and then while any wait."""
        self._looks = False
        for counter in self._counters.values():
            if not counter.waiting:
                continue
            waiting, counter.waiting = counter.waiting, deque()
            for one in waiting:
                if one.is_gone():
                    _refuse(one, _gone())
                else:
                    counter.waiting.append(one)
                    self._looks = True
        if self._looks:
            self._after(LOOK_SECONDS, self._look_for_gone)

    def leave(self, one: Try) -> None:
        """A password was looked at, or is not going to be: the next in line has its turn, past the
        hundred failures no sooner than is bounded."""
        now_us = self._monotonic_us()
        places, one.places = one.places, []
        for counter, taken_us in places:
            rest_us = taken_us + _place_us() - now_us
            if counter is one.counter and rest_us > 0 and self._is_paced(counter, now_us):
                self._after(rest_us / _SECOND_US, partial(self._free, counter))
            else:
                self._free(counter)

    def _is_paced(self, counter: _Counter, now_us: int) -> bool:
        many = counter.failures(now_us) >= limits.SIGN_IN_FAILURES_AN_HOUR
        return many and not self._is_draining

    def _free(self, counter: _Counter) -> None:
        """A place is free: it goes to who came first, or to nobody."""
        while counter.waiting:
            one = counter.waiting.popleft()
            if one.is_gone():
                _refuse(one, _gone())
            elif one.grant():
                return
        counter.places -= 1
        self._forget(counter)

    def _delay_us(self, one: Try) -> int:
        now_us = self._monotonic_us()
        counter = one.counter
        delay_us = min(DELAY_US, DELAY_FIRST_US << min(counter.in_a_row - 1, 16))
        hundreds = counter.failures(now_us) // limits.SIGN_IN_FAILURES_AN_HOUR
        if hundreds:
            delay_us = min(DELAY_MOST_US, DELAY_US * hundreds)
        if one.network_counter.failures(now_us) >= limits.NETWORK_FAILURES_AN_HOUR:
            delay_us = max(delay_us, DELAY_US)
        return delay_us

    async def hold(self, one: Try) -> None:
        """Return when a failure that was just counted may be answered. With more than
        `limits.SIGN_INS_HELD` the one held longest is answered early."""
        delay_us = self._delay_us(one)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held[answer] = None
        self._after(delay_us / _SECOND_US, lambda: _let_go(answer))
        if self._is_draining:
            _let_go(answer)
        elif len(self._held) > limits.SIGN_INS_HELD:
            _let_go(next(iter(self._held)))
        try:
            await answer
        finally:
            self._held.pop(answer, None)

    def drain(self) -> None:
        """The node stops: nobody is made to wait any more."""
        self._is_draining = True
        for answer in list(self._held):
            _let_go(answer)
        for counter in self._counters.values():
            while counter.waiting:
                _refuse(counter.waiting.popleft(), Draining("the node is stopping"))

    # --- counters ---------------------------------------------------------------------------------

    def _counter(self, name: str) -> _Counter:
        # A hash: the name in full would let anybody store megabytes here.
        text = name.encode("utf-8", "surrogatepass")
        key = blake2b(text, key=self._secret, digest_size=16).digest()
        counter = self._counters.get(key)
        if counter is None:
            if len(self._counters) >= TRIES:
                self._make_room()
            counter = self._counters[key] = _Counter(key)
        elif counter.empty_us <= self._monotonic_us():
            counter.in_a_row = 0
        return counter

    def _forget(self, counter: _Counter) -> None:
        if counter.idle and counter.empty_us <= self._monotonic_us():
            self._counters.pop(counter.key, None)

    def _make_room(self) -> None:
        """Forget what has leaked away, and if that is not an eighth, the lowest."""
        idle = sorted(
            (counter.empty_us, key) for key, counter in self._counters.items() if counter.idle
        )
        now_us = self._monotonic_us()
        least = TRIES // 8
        for number, (empty_us, key) in enumerate(idle):
            if number >= least and empty_us > now_us:
                break
            del self._counters[key]


class Try:
    """One sign-in, from its place to its answer."""

    def __init__(
        self,
        throttle: SignInThrottle,
        user: str,
        at: str,
        rank: Rank,
        counters: tuple[_Counter, _Counter, _Counter],
        is_gone: Callable[[], bool],
    ) -> None:
        self._throttle = throttle
        self._counters = counters
        self.user = user
        self.network = at
        """Where it comes from."""
        self.rank = rank
        self.is_gone = is_gone
        self.place: asyncio.Future[None] | None = None
        """Done once it has the place that it waits for, or won't have it."""
        self.counter, self.network_counter, _ = counters
        self.places: list[tuple[_Counter, int]] = []
        """Places that it has taken, each with the monotonic time of that."""
        for one in counters:
            one.under_way += 1  # so that what is counted here is found by others

    def take(self, counter: _Counter, now_us: int) -> None:
        """It has a place."""
        self.places.append((counter, now_us))

    def grant(self) -> bool:
        """Give it the place that it waits for. False: it waits no more."""
        place = self.place
        if place is None or place.done():
            return False
        place.set_result(None)
        return True

    async def failed(self) -> None:
        """Count a wrong password, and return when that may be answered."""
        now_us = self._throttle._monotonic_us()
        self.counter.add(now_us)
        self.network_counter.add(now_us)
        self._throttle.leave(self)
        await self._throttle.hold(self)

    def succeeded(self) -> None:
        """The password was right."""
        self.counter.in_a_row = 0
        self._throttle.known.add(self.user, self.network)

    def end(self) -> None:
        """It is over, however."""
        self._throttle.leave(self)
        for counter in self._counters:
            counter.under_way -= 1
            self._throttle._forget(counter)


class Known:
    """Who has brought a right password from where, since the node started."""

    def __init__(self) -> None:
        self._networks: OrderedDict[str, None] = OrderedDict()
        self._users: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()

    def add(self, user: str, at: str) -> None:
        """A password was right."""
        _renew(self._networks, at, KNOWN)
        of_user = self._users.setdefault(user, OrderedDict())
        self._users.move_to_end(user)
        if len(self._users) > KNOWN:
            self._users.popitem(last=False)
        _renew(of_user, at, KNOWN_NETWORKS)

    def rank(self, user: str, at: str) -> Rank:
        """How well somebody is known."""
        if at in self._users.get(user, ()):
            return Rank.KNOWN
        return Rank.KNOWN_NETWORK if at in self._networks else Rank.UNKNOWN


def _renew(names: OrderedDict[str, None], name: str, most: int) -> None:
    names[name] = None
    names.move_to_end(name)
    if len(names) > most:
        names.popitem(last=False)


def _let_go(answer: asyncio.Future[None]) -> None:
    if not answer.done():
        answer.set_result(None)


def _refuse(one: Try, why: Refusal) -> None:
    if one.place is not None and not one.place.done():
        one.place.set_exception(why)


def _gone() -> Refusal:
    return Cancelled("nobody waits for the answer")


def _too_many() -> Refusal:
    return TooManyTries("too many sign-ins of this user or from this address came before")


def _place_us() -> int:
    """Return the time for which a place stays taken where sign-ins are paced."""
    return limits.SIGN_INS_AT_ONCE * _SECOND_US // limits.SIGN_INS_A_SECOND
