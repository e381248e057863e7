"""Registry of running and waiting requests, for INFO FOR RUNNING, KILL, and disconnected callers.

It has running scripts, waiting operations on messages, operations on keys that wait for their turn,
open feeds, and answers that wait for the disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeVar

from actors.commits import Committer, RequestOrigin, Waiter, described
from actors.memory import NodeMemory
from actors.scripts.fiber import Fiber
from actors.sessions import ENDED
from protocol import limits
from protocol.errors import Busy, Cancelled, Refusal, SessionEnded
from protocol.requests import Caller, RunScript, Surface
from protocol.shares import fits
from protocol.values import Value

_Key = TypeVar("_Key", bound=Hashable)
Credential = tuple[str, str | None]
"""A user, and the name of its session; None: the password comes with each request."""


class Progress(Protocol):
    """Progress of a script."""

    rows_read: int
    """Rows read by the current statement."""
    waiting: bool
    """True while it waits, for messages or another's priority lock, and holds no transaction."""

    @property
    def barrier(self) -> bool:
        """True if it holds a priority lock: no other transaction commits to its read set until it
        ends."""

    def at_statement(self) -> tuple[int, str] | None:
        """Return the number of the current statement, from 1, and its text without secrets; None
        before the first."""


class RunningScript(NamedTuple):
    """A running script."""

    request: RunScript
    turn: Fiber
    began_us: int
    progress: Progress

    def info(self, now_us: int, waiter: Waiter | None = None) -> dict[str, Value]:
        """Return the row of INFO FOR RUNNING.

        :param waiter: its answer, if that waits for the disk
        """
        request, progress = self.request, self.progress
        number, text = progress.at_statement() or (None, None)
        ends_us = self.turn.ends_us if waiter is None else waiter.ends_us
        return described(
            RequestOrigin.of(request.request, request.caller),
            request.caller.user,
            (request.namespace, request.database),
            text,
            since_us=now_us - self.began_us,
            left_us=None if ends_us is None else ends_us - now_us,
            statement=number,
            slices=self.turn.slices,
            rows_read=progress.rows_read,
            waiting=progress.waiting or waiter is not None,
            commit=None if waiter is None else waiter.ticket.sequence,
            barrier=progress.barrier,
        )


class WaitingRequest(Protocol):
    """An open feed, or an operation that waits for messages or for another's priority lock, and
    holds no transaction."""

    caller: Caller
    began_us: int

    @property
    def request(self) -> str:
        """Id of the request, for KILL."""

    def end(self, why: Refusal) -> bool:
        """Answer with a refusal. Return False if it is answered already."""

    def info(self, now_us: int) -> dict[str, Value]:
        """Return the row of INFO FOR RUNNING."""


class WaitingKeyRequest(Protocol):
    """Operations on keys that wait for their turn: others come first, a priority lock blocks them,
    or they list more than fits into a slice."""

    @property
    def request(self) -> str:
        """Id of the request, for KILL."""

    @property
    def began_us(self) -> int:
        """Time of arrival, on the monotonic clock."""

    def is_of(self, user: str, session: str | None) -> bool:
        """True if they are of a user's session; None: of requests with the password."""

    def end(self, why: Refusal) -> bool:
        """Answer with a refusal. Return False if it is answered already."""

    def info(self, now_us: int) -> dict[str, Value]:
        """Return the row of INFO FOR RUNNING."""


class Running:
    """Registry by request id. A script that ends in its first slice is never listed."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self.slow = 0
        """Slow statements since the start."""
        self._runs: dict[str, RunningScript] = {}
        self._resting: dict[str, WaitingRequest] = {}
        self._feeds: dict[str, WaitingRequest] = {}
        self._by_credential: dict[Credential, dict[str, RunningScript | WaitingRequest]] = {}
        """The same requests by the credential of their callers."""
        self._waiting = _Waiting()
        """Waiting scripts, by user."""
        self._signing_in = _Waiting()
        """Waiting sign-ins, by the network they come from."""
        self.memory = NodeMemory()
        """Memory held by scripts, from their first pause to their answer."""
        self._resting_of: Counter[str] = Counter()
        self.behind: Callable[[], Sequence[WaitingKeyRequest]] = tuple
        """Returns the operations on keys that wait for their turn."""

    def __len__(self) -> int:
        return len(self._runs) + len(self._resting)

    def __iter__(self) -> Iterator[RunningScript]:
        return iter(list(self._runs.values()))

    def add(self, run: RunningScript) -> None:
        """Add a script that has begun."""
        request = run.request
        self._runs[request.request] = run
        self._enter(request.caller, request.request, run)

    def remove(self, request: str) -> None:
        """Remove a script that has ended."""
        run = self._runs.pop(request, None)
        if run is not None:
            self._leave(run.request.caller, request)

    def _enter(self, caller: Caller, request: str, one: RunningScript | WaitingRequest) -> None:
        self._by_credential.setdefault((caller.user, caller.session), {})[request] = one

    def _leave(self, caller: Caller, request: str) -> None:
        by = caller.user, caller.session
        mine = self._by_credential[by]
        del mine[request]
        if not mine:
            del self._by_credential[by]

    def begin_waiting(self, one: WaitingRequest) -> None:
        """Add a waiting operation on messages. :raises Busy: the limit of waiting requests is
        reached"""
        user = one.caller.user
        self._check_waiting(one.caller.surface, self._held(one.caller.surface, user))
        self._resting[one.request] = one
        self._resting_of[user] += 1
        self._enter(one.caller, one.request, one)

    def end_waiting(self, one: WaitingRequest) -> None:
        """Remove an operation that waits no more."""
        del self._resting[one.request]
        _less(self._resting_of, one.caller.user)
        self._leave(one.caller, one.request)

    def follow(self, feed: WaitingRequest) -> None:
        """Add an open feed. Feeds have no end and don't count against the limit of waiting
        requests."""
        self._feeds[feed.request] = feed
        self._enter(feed.caller, feed.request, feed)

    def unfollow(self, feed: WaitingRequest) -> None:
        """Remove a feed that is over."""
        del self._feeds[feed.request]
        self._leave(feed.caller, feed.request)

    @property
    def resting(self) -> int:
        """Number of waiting operations on messages."""
        return len(self._resting)

    def end_all(self, why: Refusal) -> None:
        """End every script at its next slice, every wait, and every operation that waits for its
        turn."""
        for run in self:
            run.turn.cancel(why.also())  # a copy: each gets the position where it was ended
        resting = [*self._resting.values(), *self._feeds.values()]
        waiting: list[WaitingRequest | WaitingKeyRequest] = [*resting, *self.behind()]
        for one in waiting:
            one.end(why)

    def cancel(self, request: str, why: str = "the script was cancelled") -> bool:
        """End a script at its next slice, or an answer's wait. Return False if there is none."""
        run = self._runs.get(request)
        if run is not None:
            run.turn.cancel(Cancelled(why))
            return True
        resting = self._resting.get(request) or self._feeds.get(request)
        if resting is not None:
            return resting.end(Cancelled(why))
        waiting: list[WaitingKeyRequest | Waiter] = [*self.behind(), *self._committer.waiters]
        for one in waiting:
            if one.request == request:
                return one.end(Cancelled(why))
        return False

    def on_credential_ended(
        self, user: str, session: str | None, cut: bool, sparing: str | None
    ) -> None:
        """End requests whose credential has ended, at their next slice.

        If the credential has expired, running scripts go on, with two exceptions. Those that wait
        end, since later messages are not for them; so do those with a priority lock, which block
        others.

        :param session: as in `Caller.session`; None: the password that comes with each request
        :param cut: True if the credential was ended on purpose: every request ends
        :param sparing: request id of the script that ended it, which goes on
        """
        for one in list(self._by_credential.get((user, session), {}).values()):
            _end(one, cut, sparing)
        for behind in self.behind():
            if behind.is_of(user, session):
                behind.end(SessionEnded(ENDED))

    def waiting(self, surface: Surface) -> int:
        """Return the number of scripts of a surface that wait for messages. They don't count among
        its running scripts: a long poll is no work."""
        return self._waiting.of[surface]

    def waiting_of(self, surface: Surface, user: str) -> int:
        """Return the number of a user's waiting scripts on a surface."""
        return self._waiting.by[surface, user]

    @contextmanager
    def aside(self, surface: Surface, user: str) -> Iterator[None]:
        """Count a script for as long as it waits. :raises Busy: the limit of waiting requests is
        reached"""
        self._check_waiting(surface, self._held(surface, user))
        with self._waiting.counted(surface, user):
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
        return self._waiting.by[surface, user] + self._resting_of[user]

    def _check_waiting(self, surface: Surface, held: int) -> None:
        """Check the limit of waiting requests.

        :param held: waiting requests of this user or network
        :raises Busy: the limit is reached
        """
        total = self._waiting.of[surface] + self._signing_in.of[surface] + len(self._resting)
        if not fits(held, 1, total, limits.WAITING, limits.WAITING_OF_OTHERS):
            raise Busy(
                f"too many scripts and sign-ins wait: {total}, of which {held} by this caller"
            )

    def slices(self) -> int:
        """Return the number of yields of the scripts now running."""
        return sum(run.turn.slices for run in self)

    def info(self, now_us: int) -> list[Value]:
        """Return the answer of INFO FOR RUNNING, longest first."""
        waiting = [*self._resting.values(), *self._feeds.values()]
        every = [*self, *waiting, *self.behind(), *self._committer.waiters]
        return [one.info(now_us) for one in sorted(every, key=attrgetter("began_us"))]


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
    if not counter[key]:
        del counter[key]


def _end(run: RunningScript | WaitingRequest, cut: bool, sparing: str | None) -> None:
    ended = SessionEnded(ENDED)
    if not isinstance(run, RunningScript):
        run.end(ended)
    elif run.request.request != sparing and (cut or run.progress.waiting or run.progress.barrier):
        run.turn.cancel(ended)
