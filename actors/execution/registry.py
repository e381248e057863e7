"""Registry of live requests: the one list behind INFO FOR RUNNING, KILL, sign-out and drain.

| live | from | until |
|---|---|---|
| script | its first pause | it has ended |
| operations on messages | they wait for messages or for a priority lock | they run again |
| operations on keys | they are put off, or a listing needs another slice | they are answered |
| feed | it is open, or waits for its start | it is over |
| answer | it waits for the disk or for replicas | it is released, or its wait is ended |

A request that ends within its first slice and a GET never enter it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Final, NamedTuple, Protocol, TypeVar

from actors.memory import NodeMemory
from protocol import limits
from protocol.errors import Busy, Cancelled, Refusal
from protocol.requests import Caller, Surface
from protocol.shares import fits
from protocol.values import Value

ENDED: Final = "the session has ended: sign in again"
_Key = TypeVar("_Key", bound=Hashable)
Credential = tuple[str, str]
"""Credential whose end ends requests: `(session, "")`, or `("", user)` for the password that comes
with each request."""


def credential_of(user: str, session: str | None) -> Credential:
    """Return the credential of a caller. :param session: as in `Caller.session`"""
    return ("", user) if session is None else (session, "")


class LiveRequest(Protocol):
    """A request that can be listed and ended."""

    @property
    def id(self) -> str:
        """Id of the request, for KILL. The parts of one request share it."""

    @property
    def began_us(self) -> int:
        """Time of arrival, on the monotonic clock."""

    def end(self, why: Refusal) -> bool:
        """End it as its state allows. Return False if it is answered already."""

    def on_credential_ended(self, cut: bool, sparing: str | None) -> None:
        """End it if its credential entitles it no longer.

        :param cut: True if the credential was ended on purpose; False: it has expired
        :param sparing: id of the script that ended the credential, which goes on
        """

    def describe(self, now_us: int) -> dict[str, Value]:
        """Return its row of INFO FOR RUNNING."""


class WaitingRequest(LiveRequest, Protocol):
    """A request that counts against the limits of waiting requests."""

    @property
    def caller(self) -> Caller:
        """User, session and surface."""


class _Entry(NamedTuple):
    credential: Credential | None
    """Credential that ends it; None: neither a credential nor a drain does."""
    finishes: bool
    """True if a drain waits for it."""


_WAITS_FOR_COMMIT = _Entry(None, finishes=False)


class Registry:
    """Every live request of the node, in order of entry, and by credential."""

    def __init__(self) -> None:
        self._live: dict[LiveRequest, _Entry] = {}
        self._by_credential: dict[Credential, dict[LiveRequest, None]] = {}
        self.unfinished = 0
        """Number of requests that a drain waits for: scripts, and operations on messages."""
        self.slow = 0
        """Slow statements since the start."""
        self.memory = NodeMemory()
        """Memory held by scripts, from their first pause to their answer."""
        self._aside = _Waiting()
        """Waiting scripts, by user."""
        self._signing_in = _Waiting()
        """Waiting sign-ins, by the network they come from."""
        self._resting = 0
        self._resting_of: Counter[str] = Counter()

    def __iter__(self) -> Iterator[LiveRequest]:
        # A copy: a request that is ended leaves during the iteration.
        return iter(list(self._live))

    # --- entry and exit -------------------------------------------------------------------------

    def enter(
        self, one: LiveRequest, credential: Credential | None = None, *, finishes: bool = False
    ) -> None:
        """Add a request, unless it is in already.

        :param credential: credential that ends it; None: neither a credential nor a drain does
        :param finishes: True if a drain waits for it
        """
        if one in self._live:
            return
        # An answer that waits for a commit: its work was done under a valid credential.
        if credential is None:
            self._live[one] = _WAITS_FOR_COMMIT
            return
        self._live[one] = _Entry(credential, finishes)
        self.unfinished += finishes
        self._by_credential.setdefault(credential, {})[one] = None

    def leave(self, one: LiveRequest) -> None:
        """Remove a request, if it is in."""
        entry = self._live.pop(one, None)
        if entry is None or entry.credential is None:
            return
        self.unfinished -= entry.finishes
        mine = self._by_credential[entry.credential]
        del mine[one]
        if not mine:
            del self._by_credential[entry.credential]

    # --- ends ------------------------------------------------------------------------------------

    def kill(self, id: str, why: str = "the script was cancelled") -> bool:
        """End a request and all its parts. Return False if none is live."""
        ended = False
        for one in self:
            if one.id == id:
                ended = one.end(Cancelled(why)) or ended
        return ended

    def end_all(self, why: Refusal) -> None:
        """End every request that does not wait for its commit."""
        for one, entry in list(self._live.items()):
            if entry.credential is not None:
                one.end(why.also())  # a copy: each gets the position where it was ended

    def on_credential_ended(
        self, user: str, session: str | None, cut: bool, sparing: str | None
    ) -> None:
        """End requests whose credential has ended.

        :param session: as in `Caller.session`; None: the password that comes with each request
        :param cut: as in `LiveRequest.on_credential_ended`
        :param sparing: as in `LiveRequest.on_credential_ended`
        """
        # A copy: an ended request leaves.
        for one in list(self._by_credential.get(credential_of(user, session), ())):
            one.on_credential_ended(cut, sparing)

    def describe(self, now_us: int) -> list[Value]:
        """Return the answer of INFO FOR RUNNING, longest first."""
        return [one.describe(now_us) for one in sorted(self, key=attrgetter("began_us"))]

    # --- limits on waiting ------------------------------------------------------------------------

    @property
    def resting(self) -> int:
        """Number of operations on messages that wait, and of feeds that wait for their start."""
        return self._resting

    def begin_waiting(self, one: WaitingRequest) -> None:
        """Add a waiting operation on messages, or a feed that waits for its start.

        :raises Busy: the limit of waiting requests is reached
        """
        caller = one.caller
        # Before any count changes: `Busy` leaves no trace.
        self._check_waiting(caller.surface, self._held(caller.surface, caller.user))
        self._resting += 1
        self._resting_of[caller.user] += 1
        self.enter(one, credential_of(caller.user, caller.session), finishes=True)

    def end_waiting(self, one: WaitingRequest) -> None:
        """Remove a request that waits no more."""
        self._resting -= 1
        _less(self._resting_of, one.caller.user)
        self.leave(one)

    def waiting(self, surface: Surface) -> int:
        """Return the number of scripts of a surface that wait for messages. They don't count among
        its running scripts: a long poll is no work."""
        return self._aside.of[surface]

    def waiting_of(self, surface: Surface, user: str) -> int:
        """Return the number of a user's waiting scripts on a surface."""
        return self._aside.by[surface, user]

    @contextmanager
    def aside(self, surface: Surface, user: str) -> Iterator[None]:
        """Count a script for as long as it waits. :raises Busy: the limit of waiting requests is
        reached"""
        self._check_waiting(surface, self._held(surface, user))
        with self._aside.counted(surface, user):
            yield

    @contextmanager
    def signing_in(self, surface: Surface, network: str) -> Iterator[None]:
        """Count a sign-in for as long as it waits for its password check.

        :param network: network of the client
        :raises Busy: the limit of waiting requests is reached
        """
        self._check_waiting(surface, self._signing_in.by[surface, network])
        with self._signing_in.counted(surface, network):
            yield

    def _held(self, surface: Surface, user: str) -> int:
        # Scripts count by surface, operations and feeds over all surfaces.
        return self._aside.by[surface, user] + self._resting_of[user]

    def _check_waiting(self, surface: Surface, held: int) -> None:
        """Check the limit of waiting requests.

        :param held: waiting requests of this user or network
        :raises Busy: the limit is reached
        """
        total = self._aside.of[surface] + self._signing_in.of[surface] + self._resting
        if not fits(held, 1, total, limits.WAITING, limits.WAITING_OF_OTHERS):
            raise Busy(
                f"too many scripts and sign-ins wait: {total}, of which {held} by this caller"
            )


class _Waiting:
    """Counts of waiting requests, by surface, and by surface and user or network."""

    def __init__(self) -> None:
        self.of: Counter[Surface] = Counter()
        self.by: Counter[tuple[Surface, str]] = Counter()

    @contextmanager
    def counted(self, surface: Surface, whose: str) -> Iterator[None]:
        """Count one more for as long as it waits."""
        self.of[surface] += 1
        self.by[surface, whose] += 1
        try:
            yield
        finally:
            self.of[surface] -= 1
            _less(self.by, (surface, whose))


def _less(counter: Counter[_Key], key: _Key) -> None:
    """Count one less, and remove a key at zero."""
    counter[key] -= 1
    # Keys are users and networks: entries at zero would pile up without end.
    if not counter[key]:
        del counter[key]
