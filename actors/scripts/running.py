"""The scripts being run, operations on messages that wait for some, those on keys that wait for
their turn, open feeds, and the answers that wait for the disk: for INFO FOR RUNNING, KILL, and
callers that go away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from actors.commits import Committer, Waiter
from actors.scripts.turns import Turn
from protocol import limits
from protocol.errors import Busy, Cancelled, Refusal, SessionEnded
from protocol.requests import Caller, RunScript, Surface
from protocol.text import duration
from protocol.values import Value

ENDED: Final = "the session has ended: sign in again"


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
        number, text = self.progress.at_statement() or (None, None)
        ends_us = self.turn.ends_us if waiter is None else waiter.ends_us
        return {
            "id": self.request.request,
            "user": self.request.caller.user,
            "surface": self.request.caller.surface,
            "address": self.request.caller.address,
            "namespace": self.request.namespace,
            "database": self.request.database,
            "statement": number,
            "text": text,
            "since": duration(now_us - self.began_us),
            "left": None if ends_us is None else duration(max(ends_us - now_us, 0)),
            "slices": self.turn.slices,
            "rows_read": self.progress.rows_read,
            "waiting": self.progress.waiting or waiter is not None,
            "commit": None if waiter is None else waiter.ticket.sequence,
            "barrier": self.progress.barrier,
        }


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

    def is_of(self, user: str | None, session: str | None) -> bool:
        """Whether they are of a session, or of a user who brought the password itself."""

    def end(self, why: Refusal) -> bool:
        """Answer with that. False: it is answered already."""

    def info(self, now_us: int) -> dict[str, Value]:
        """What INFO FOR RUNNING says of it."""


class Running:
    """All of them, by the id of their request. What ends in its first slice is not among them."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._runs: dict[str, Run] = {}
        self._resting: dict[str, Resting] = {}
        self._feeds: dict[str, Resting] = {}
        self._of_session: dict[str, dict[str, Run | Resting]] = {}
        """The same by the names of their sessions, as far as they have one."""
        self._waiting: dict[Surface, int] = {}
        """Scripts."""
        self._signing_in: dict[Surface, int] = {}
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
        self._enter_session(request.caller.session, request.request, run)

    def remove(self, request: str) -> None:
        """A script has ended."""
        run = self._runs.pop(request, None)
        if run is not None:
            self._leave_session(run.request.caller.session, request)

    def _enter_session(self, session: str | None, request: str, one: Run | Resting) -> None:
        if session is not None:
            self._of_session.setdefault(session, {})[request] = one

    def _leave_session(self, session: str | None, request: str) -> None:
        if session is not None:
            mine = self._of_session[session]
            del mine[request]
            if not mine:
                del self._of_session[session]

    def rest(self, one: Resting) -> None:
        """An operation on messages waits. :raises Busy: as many wait as may"""
        self._check_waiting(one.caller.surface)
        self._resting[one.request] = one
        self._enter_session(one.caller.session, one.request, one)

    def go_on(self, one: Resting) -> None:
        """It waits no more."""
        del self._resting[one.request]
        self._leave_session(one.caller.session, one.request)

    def follow(self, feed: Resting) -> None:
        """A feed is open: it waits for as long as it is, and that counts nowhere."""
        self._feeds[feed.request] = feed
        self._enter_session(feed.caller.session, feed.request, feed)

    def unfollow(self, feed: Resting) -> None:
        """It is over."""
        del self._feeds[feed.request]
        self._leave_session(feed.caller.session, feed.request)

    @property
    def resting(self) -> int:
        """How many operations on messages wait."""
        return len(self._resting)

    def end_all(self, why: Refusal) -> None:
        """End every script at its next slice, and every wait."""
        for run in self:
            run.turn.cancel(why.also())  # each says where it was ended
        for one in [*self._resting.values(), *self._feeds.values()]:
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

    def session_ended(self, name: str, cut: bool, sparing: str | None) -> None:
        """What runs in a session that somebody has ended ends with it, at its next slice. Where its
        time was over, scripts that wait for messages wait no more: what comes later is not for
        them. Neither does one of them make others wait any more.

        :param name: as in `Caller.session`
        :param cut: whether somebody has ended it
        :param sparing: the request of the script that did
        """
        for run in list(self._of_session.get(name, {}).values()):
            _end(run, cut, sparing)
        self._end_behind(None, name)

    def sessions_ended(self, user: str, but: str | None, sparing: str | None) -> None:
        """The same of those who brought the user's password themselves: it was changed, or the user
        is no more. (The user's sessions end one by one.)"""
        for run in self:
            caller = run.request.caller
            if caller.user == user and caller.session is None:
                _end(run, True, sparing)
        for feed in list(self._feeds.values()):
            if feed.caller.user == user and feed.caller.session is None:
                _end(feed, True, sparing)
        self._end_behind(user, None)

    def _end_behind(self, user: str | None, session: str | None) -> None:
        for one in self.behind():
            if one.is_of(user, session):
                one.end(SessionEnded(ENDED))

    def waiting(self, surface: Surface) -> int:
        """How many scripts of a surface wait for messages. These don't count among those that
        it runs: a long poll is no work."""
        return self._waiting.get(surface, 0)

    def aside(self, surface: Surface) -> AbstractContextManager[None]:
        """For as long as a script waits. :raises Busy: as many wait as may"""
        return self._counted(self._waiting, surface)

    def signing_in(self, surface: Surface) -> AbstractContextManager[None]:
        """For as long as somebody waits for a password to be looked at. :raises Busy: likewise"""
        return self._counted(self._signing_in, surface)

    @contextmanager
    def _counted(self, among: dict[Surface, int], surface: Surface) -> Iterator[None]:
        self._check_waiting(surface)
        among[surface] = among.get(surface, 0) + 1
        try:
            yield
        finally:
            among[surface] -= 1

    def _check_waiting(self, surface: Surface) -> None:
        waiting = self._waiting.get(surface, 0) + self._signing_in.get(surface, 0)
        if waiting + len(self._resting) >= limits.WAITING:
            raise Busy(f"{limits.WAITING} scripts and sign-ins wait already, and that is all")

    def slices(self) -> int:
        """How often the scripts now running have handed the loop back."""
        return sum(run.turn.slices for run in self)

    def info(self, now_us: int) -> list[Value]:
        """What INFO FOR RUNNING answers, longest first."""
        waiting = [*self._resting.values(), *self._feeds.values()]
        every = [*self, *waiting, *self.behind(), *self._committer.waiters]
        return [one.info(now_us) for one in sorted(every, key=attrgetter("began_us"))]


def _end(run: Run | Resting, cut: bool, sparing: str | None) -> None:
    ended = SessionEnded(ENDED)
    if not isinstance(run, Run):
        run.end(ended)
    elif run.request.request != sparing and (cut or run.progress.waiting or run.progress.barrier):
        run.turn.cancel(ended)
