"""The scripts being run, operations on messages that wait for some, those on keys that wait for
their turn, open feeds, and the answers that wait for the disk: for INFO FOR RUNNING, KILL, and
callers that go away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeVar

from actors.commits import Committer, Origin, Waiter, described
from actors.memory import NodeMemory
from actors.scripts.turns import Turn
from actors.sessions import ENDED
from protocol import limits
from protocol.errors import Busy, Cancelled, Refusal, SessionEnded
from protocol.requests import Caller, RunScript, Surface
from protocol.shares import fits
from protocol.values import Value

_Key = TypeVar("_Key", bound=Hashable)
Credential = tuple[str, str | None]
"""A user, and the name of its session; None: it brings the password with each request."""


class Progress(Protocol):
    """How far a script has come."""

    rows_read: int
    """By the statement being run."""
    waiting: bool
    """Whether it waits, for messages or another's barrier, and holds nothing meanwhile."""

    @property
    def barrier(self) -> bool:
        """Whether nobody commits to what it reads until it has ended."""

    def at_statement(self) -> tuple[int, str] | None:
        """The number of the statement being run, from 1, and its text without secrets; None before
        the first."""


class Run(NamedTuple):
    """One of them."""

    request: RunScript
    turn: Turn
    began_us: int
    progress: Progress

    def info(self, now_us: int, waiter: Waiter | None = None) -> dict[str, Value]:
        """What INFO FOR RUNNING says of it.

        :param waiter: its answer, which waits for the disk
        """
        request, progress = self.request, self.progress
        number, text = progress.at_statement() or (None, None)
        ends_us = self.turn.ends_us if waiter is None else waiter.ends_us
        return described(
            Origin.of(request.request, request.caller),
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


class Resting(Protocol):
    """An operation on messages that waits for some, or for another's barrier, and holds nothing; or
    an open feed."""

    caller: Caller
    began_us: int

    @property
    def request(self) -> str:
        """Names it, as KILL does."""

    def end(self, why: Refusal) -> bool:
        """Answer with that. False: it is answered already."""

    def info(self, now_us: int) -> dict[str, Value]:
        """What INFO FOR RUNNING says of it."""


class Behind(Protocol):
    """Operations on keys that wait for their turn: others come first, a barrier stands in their
    way, or they list more than a slice's worth."""

    @property
    def request(self) -> str:
        """Names it, as KILL does."""

    @property
    def began_us(self) -> int:
        """When it came, on the monotonic clock."""

    def is_of(self, user: str, session: str | None) -> bool:
        """True if they are of a user's session; None: if it brought the password itself."""

    def end(self, why: Refusal) -> bool:
        """Answer with that. False: it is answered already."""

    def info(self, now_us: int) -> dict[str, Value]:
        """What INFO FOR RUNNING says of it."""


class Running:
    """All of them, by the id of their request. What ends in its first slice is not among them."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self.slow = 0
        """Statements that were slow, since the start."""
        self._runs: dict[str, Run] = {}
        self._resting: dict[str, Resting] = {}
        self._feeds: dict[str, Resting] = {}
        self._by_credential: dict[Credential, dict[str, Run | Resting]] = {}
        """The same by what their callers were let in by."""
        self._waiting = _Waiting()
        """Scripts, by user."""
        self._signing_in = _Waiting()
        """Sign-ins, by the network they come from."""
        self.memory = NodeMemory()
        """Memory held by scripts, from their first pause to their answer."""
        self._resting_of: Counter[str] = Counter()
        self.behind: Callable[[], Sequence[Behind]] = tuple
        """Answers the operations on keys that wait for their turn."""

    def __len__(self) -> int:
        return len(self._runs) + len(self._resting)

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self._runs.values()))

    def add(self, run: Run) -> None:
        """A script has begun."""
        request = run.request
        self._runs[request.request] = run
        self._enter(request.caller, request.request, run)

    def remove(self, request: str) -> None:
        """A script has ended."""
        run = self._runs.pop(request, None)
        if run is not None:
            self._leave(run.request.caller, request)

    def _enter(self, caller: Caller, request: str, one: Run | Resting) -> None:
        self._by_credential.setdefault((caller.user, caller.session), {})[request] = one

    def _leave(self, caller: Caller, request: str) -> None:
        by = caller.user, caller.session
        mine = self._by_credential[by]
        del mine[request]
        if not mine:
            del self._by_credential[by]

    def rest(self, one: Resting) -> None:
        """An operation on messages waits. :raises Busy: as many wait as may"""
        user = one.caller.user
        self._check_waiting(one.caller.surface, self._held(one.caller.surface, user))
        self._resting[one.request] = one
        self._resting_of[user] += 1
        self._enter(one.caller, one.request, one)

    def go_on(self, one: Resting) -> None:
        """It waits no more."""
        del self._resting[one.request]
        _less(self._resting_of, one.caller.user)
        self._leave(one.caller, one.request)

    def follow(self, feed: Resting) -> None:
        """A feed is open: it waits for as long as it is, and that counts nowhere."""
        self._feeds[feed.request] = feed
        self._enter(feed.caller, feed.request, feed)

    def unfollow(self, feed: Resting) -> None:
        """It is over."""
        del self._feeds[feed.request]
        self._leave(feed.caller, feed.request)

    @property
    def resting(self) -> int:
        """How many operations on messages wait."""
        return len(self._resting)

    def end_all(self, why: Refusal) -> None:
        """End every script at its next slice, every wait, and what waits for its turn."""
        for run in self:
            run.turn.cancel(why.also())  # each says where it was ended
        resting = [*self._resting.values(), *self._feeds.values()]
        waiting: list[Resting | Behind] = [*resting, *self.behind()]
        for one in waiting:
            one.end(why)

    def cancel(self, request: str, why: str = "the script was cancelled") -> bool:
        """Make a script end at its next slice, or an answer wait no more. Answers whether there was
        one."""
        run = self._runs.get(request)
        if run is not None:
            run.turn.cancel(Cancelled(why))
            return True
        resting = self._resting.get(request) or self._feeds.get(request)
        if resting is not None:
            return resting.end(Cancelled(why))
        waiting: list[Behind | Waiter] = [*self.behind(), *self._committer.waiters]
        for one in waiting:
            if one.request == request:
                return one.end(Cancelled(why))
        return False

    def on_credential_ended(
        self, user: str, session: str | None, cut: bool, sparing: str | None
    ) -> None:
        """What runs by a credential that somebody has ended ends with it, at its next slice. Where
        its time was over, scripts that wait for messages wait no more: what comes later is not for
        them. Neither does one of them make others wait any more.

        :param session: as in `Caller.session`; None: the password that comes with each request
        :param cut: whether somebody has ended it
        :param sparing: the request of the script that did
        """
        for one in list(self._by_credential.get((user, session), {}).values()):
            _end(one, cut, sparing)
        for behind in self.behind():
            if behind.is_of(user, session):
                behind.end(SessionEnded(ENDED))

    def waiting(self, surface: Surface) -> int:
        """How many scripts of a surface wait for messages. These don't count among those that
        it runs: a long poll is no work."""
        return self._waiting.of[surface]

    def waiting_of(self, surface: Surface, user: str) -> int:
        """Return the number of these that are a user's."""
        return self._waiting.by[surface, user]

    @contextmanager
    def aside(self, surface: Surface, user: str) -> Iterator[None]:
        """For as long as a script waits. :raises Busy: as many wait as may"""
        self._check_waiting(surface, self._held(surface, user))
        with self._waiting.counted(surface, user):
            yield

    @contextmanager
    def signing_in(self, surface: Surface, network: str) -> Iterator[None]:
        """For as long as somebody waits for a password to be looked at. :raises Busy: likewise

        :param network: where that comes from
        """
        self._check_waiting(surface, self._signing_in.by[surface, network])
        with self._signing_in.counted(surface, network):
            yield

    def _held(self, surface: Surface, user: str) -> int:
        return self._waiting.by[surface, user] + self._resting_of[user]

    def _check_waiting(self, surface: Surface, held: int) -> None:
        """:param held: how many of who asks wait already"""
        total = self._waiting.of[surface] + self._signing_in.of[surface] + len(self._resting)
        if not fits(held, 1, total, limits.WAITING, limits.WAITING_OF_OTHERS):
            raise Busy(f"too many scripts and sign-ins wait: {total}, {held} of them like this one")

    def slices(self) -> int:
        """How often the scripts now running have handed the loop back."""
        return sum(run.turn.slices for run in self)

    def info(self, now_us: int) -> list[Value]:
        """What INFO FOR RUNNING answers, longest first."""
        waiting = [*self._resting.values(), *self._feeds.values()]
        every = [*self, *waiting, *self.behind(), *self._committer.waiters]
        return [one.info(now_us) for one in sorted(every, key=attrgetter("began_us"))]


class _Waiting:
    """Counts of those that wait, by surface and by whose they are."""

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
    """Count one less, and forget who has none."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def _end(run: Run | Resting, cut: bool, sparing: str | None) -> None:
    ended = SessionEnded(ENDED)
    if not isinstance(run, Run):
        run.end(ended)
    elif run.request.request != sparing and (cut or run.progress.waiting or run.progress.barrier):
        run.turn.cancel(ended)
