"""Sign-in throttle: delays responses to failures, and serves attempts in order.

A failure is answered late. The delay grows with the failures of the same user from the same
address: 0.1 s to 5 s, and up to 30 s from the hundredth in an hour. That slows only clients that
wait for their responses. Guessing is bounded by the rate at which passwords are verified. A few
attempts of one user from one address run at once. Past the hundred failures,
`limits.SIGN_INS_A_SECOND` run in a second, even if the clients do not wait for the responses.

Before it is verified, the password of the owner can't be told from a guess from the same address.
So no attempt is refused unverified to make room for another: attempts queue, first come, first
served. With n of them ahead, the right one is let in after n / `limits.SIGN_INS_A_SECOND` seconds.
An attempt whose client gives up leaves the queue. So repeated attempts neither advance a client nor
delay others.

Invariants:

- Failures leak away, one every 36 s (leaky bucket). So a counter costs memory only while failures
  keep coming, and only 270 failures a second, more than a few processors can hash, keep TRIES
  counters alive. Then the lowest counters are evicted: invented names with a failure each.
- A queue costs memory only for its requests, which are bounded where they arrive.
- A *known* user has brought a right password from an address. It is never forgotten because of
  failures: only right passwords are remembered, and evict only right ones. It does not wait for
  unknown users of its address.
- A *proven* session skips the queue: it has nothing to guess. The first wrong password ends that.
- Nothing here reveals if a user exists: existing and invented names are treated alike.
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
from protocol.environment import Clock, Rng
from protocol.errors import Cancelled, Draining, Refusal, TooManyTries
from protocol.requests import stays

_SECOND_US: Final = 1_000_000
FAILURE_US: Final = 3600 * _SECOND_US // limits.SIGN_IN_FAILURES_AN_HOUR
"""Amount that one failure adds to a counter, in µs; a counter drains with time."""
DELAY_FIRST_US: Final = _SECOND_US // 10
DELAY_US: Final = 5 * _SECOND_US
"""Limit of the doubling delay; beyond a hundred failures it is multiplied by the hundreds."""
DELAY_MOST_US: Final = 30 * _SECOND_US
TRIES: Final = 10_000
LOOK_SECONDS: Final = 1
KNOWN_NETWORKS: Final = 16
"""Known networks per user, and (below) known networks and known users in all."""
KNOWN: Final = 10_000

After = Callable[[float, Callable[[], None]], object]
"""Schedules a call after so many seconds."""


class HashPriority(IntEnum):
    """Priority for the hashing threads."""

    PROVEN = 0
    """The session has brought the right secret before, and no wrong one since."""
    KNOWN = 1
    """The user has signed in from that network."""
    KNOWN_NETWORK = 2
    """Another user has signed in from that network."""
    UNKNOWN = 3


def network(address: str) -> str:
    """Return the network of a peer: its address without the port, for IPv6 the /64 prefix of one
    site. Text that is not an address is returned without its port."""
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
    """Monotonic time at which the counter will be empty if no failure is added."""
    in_a_row: int = 0
    under_way: int = 0
    places: int = 0
    """Places taken by attempts under verification, and by finished ones that are paced."""
    waiting: deque[Try] = field(default_factory=deque)

    def failures(self, now_us: int) -> int:
        return max(0, -((now_us - self.empty_us) // FAILURE_US))

    def add(self, now_us: int) -> None:
        self.empty_us = max(self.empty_us, now_us) + FAILURE_US
        self.in_a_row += 1

    @property
    def idle(self) -> bool:
        return not (self.under_way or self.places)


OF_A_TRY: Final = 3
"""Counters of one attempt."""


class SignInThrottle:
    """Counters and queues of one node; on the loop only.

    :param after: sets a timer that ends with the owner of the throttle
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
        """True if a check for attempts with gone clients is scheduled."""
        self.known = Known()

    def __len__(self) -> int:
        return len(self._counters)

    async def enter(
        self,
        user: str,
        address: str,
        *,
        proven: bool = False,
        is_gone: Callable[[], bool] = stays,
    ) -> Try:
        """Wait for the turn of an attempt; the caller must call `Try.end` afterwards.

        :param proven: True if the session is proven
        :param is_gone: returns True once the client no longer waits
        :raises Cancelled: the client no longer waits
        :raises TooManyTries: the queue is too long, or the turn did not come in time
        """
        at = network(address)
        if len(self._counters) + OF_A_TRY > TRIES:
            self._make_room()  # before any of its own is made, which would be the first to go
        rank = HashPriority.PROVEN if proven else self.known.rank(user, at)
        of_pair, of_network = self._counter(f"{len(at)}:{at}:{user}"), self._counter(at)
        # Known users queue by themselves: unknown ones of their address can't delay them.
        gate = of_network if rank > HashPriority.KNOWN else self._counter(f"known:{at}")
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
                one.take(counter, self._monotonic_us())  # so that it is given back, even if late

    def _look_for_gone(self) -> None:
        """Remove attempts of gone clients from the queues, periodically while any attempt waits."""
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
        """Give back the places of an attempt, to the next in the queue. Past the hundred failures
        that is delayed to the bounded rate."""
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
        """Give a free place to the first attempt that waits, if any."""
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
        """Wait until the failure that was just counted may be answered. If more than
        `limits.SIGN_INS_HELD` wait, the oldest is answered early."""
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
        """Release all that wait: the node stops."""
        self._is_draining = True
        for answer in list(self._held):
            _let_go(answer)
        for counter in self._counters.values():
            while counter.waiting:
                _refuse(counter.waiting.popleft(), Draining("the node is stopping"))

    # --- counters ---------------------------------------------------------------------------------

    def _counter(self, name: str) -> _Counter:
        # Hashed, or clients could store megabytes here with long names.
        text = name.encode("utf-8", "surrogatepass")
        key = blake2b(text, key=self._secret, digest_size=16).digest()
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = _Counter(key)
        elif counter.empty_us <= self._monotonic_us():
            counter.in_a_row = 0
        return counter

    def _forget(self, counter: _Counter) -> None:
        if counter.idle and counter.empty_us <= self._monotonic_us():
            self._counters.pop(counter.key, None)

    def _make_room(self) -> None:
        """Evict all drained counters, and the lowest others until an eighth of all is gone."""
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
    """Sign-in attempt, from its place in the queue to its response."""

    def __init__(
        self,
        throttle: SignInThrottle,
        user: str,
        at: str,
        rank: HashPriority,
        counters: tuple[_Counter, _Counter, _Counter],
        is_gone: Callable[[], bool],
    ) -> None:
        self._throttle = throttle
        self._counters = counters
        self.user = user
        self.network = at
        """Network that it comes from."""
        self.rank = rank
        self.is_gone = is_gone
        self.place: asyncio.Future[None] | None = None
        """Completed once the place that it waits for is granted or refused."""
        self.counter, self.network_counter, _ = counters
        self.places: list[tuple[_Counter, int]] = []
        """Places held, each with the monotonic time at which it was taken."""
        for one in counters:
            one.under_way += 1  # keeps the counter from being evicted

    def take(self, counter: _Counter, now_us: int) -> None:
        """Note that it holds a place."""
        self.places.append((counter, now_us))

    def grant(self) -> bool:
        """Grant the place that it waits for. Return False if it no longer waits."""
        place = self.place
        if place is None or place.done():
            return False
        place.set_result(None)
        return True

    async def failed(self) -> None:
        """Count a wrong password, and return when it may be answered."""
        now_us = self._throttle._monotonic_us()
        self.counter.add(now_us)
        self.network_counter.add(now_us)
        self._throttle.leave(self)
        await self._throttle.hold(self)

    def succeeded(self) -> None:
        """Reset the doubling of the delay, and remember the user's network as known."""
        self.counter.in_a_row = 0
        self._throttle.known.add(self.user, self.network)

    def end(self) -> None:
        """End the attempt, whatever its outcome. Call it exactly once."""
        self._throttle.leave(self)
        for counter in self._counters:
            counter.under_way -= 1
            self._throttle._forget(counter)


class Known:
    """Networks from which users have brought right passwords since the node started."""

    def __init__(self) -> None:
        self._networks: OrderedDict[str, None] = OrderedDict()
        self._users: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()

    def add(self, user: str, at: str) -> None:
        """Note a right password."""
        _renew(self._networks, at, KNOWN)
        of_user = self._users.setdefault(user, OrderedDict())
        self._users.move_to_end(user)
        if len(self._users) > KNOWN:
            self._users.popitem(last=False)
        _renew(of_user, at, KNOWN_NETWORKS)

    def rank(self, user: str, at: str) -> HashPriority:
        """Return the rank of a user at a network."""
        if at in self._users.get(user, ()):
            return HashPriority.KNOWN
        return HashPriority.KNOWN_NETWORK if at in self._networks else HashPriority.UNKNOWN


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
    return Cancelled("the client that asked is gone")


def _too_many() -> Refusal:
    return TooManyTries("too many sign-ins of this user or from this address: try again later")


def _place_us() -> int:
    """Return the time, in µs, for which a paced attempt occupies its place."""
    return limits.SIGN_INS_AT_ONCE * _SECOND_US // limits.SIGN_INS_A_SECOND
