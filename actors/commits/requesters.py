"""Who made a request on a surface, and hears what came of it.

Engines do what is asked on the loop, at once, and answer by returning if nothing has to be waited
for. What has to wait tells its asker later: that is no future, since most of what an asker does
with an answer is to write it out, and a future's turn of the loop costs more than that.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from protocol.requests import Caller, Surface
from protocol.text import duration
from protocol.values import Value

Answer_contra = TypeVar("Answer_contra", contravariant=True)


class Origin(NamedTuple):
    """Where a request came from, as INFO FOR RUNNING shows it."""

    request: str
    """Names it, as KILL does."""
    surface: Surface
    address: str

    @classmethod
    def of(cls, request: str, caller: Caller) -> Origin:
        """Return that of a caller's request."""
        return cls(request, caller.surface, caller.address)


def described(
    origin: Origin,
    user: str | None,
    place: tuple[str | None, str | None],
    text: str | None,
    *,
    since_us: int,
    left_us: int | None = None,
    statement: int | None = None,
    slices: int = 0,
    rows_read: int = 0,
    waiting: bool = True,
    commit: int | None = None,
    barrier: bool = False,
) -> dict[str, Value]:
    """Return the row of INFO FOR RUNNING of a live request.

    :param place: names of its namespace and database
    :param text: of its statement, without secrets
    :param since_us: microseconds since it began
    :param left_us: microseconds until its deadline; None: it has none
    :param statement: the number of the statement being run, from 1
    :param commit: sequence of the commit that its answer waits for
    :param barrier: True if it holds the priority lock
    """
    namespace, database = place
    return {
        "id": origin.request,
        "user": user,
        "surface": origin.surface,
        "address": origin.address,
        "namespace": namespace,
        "database": database,
        "statement": statement,
        "text": text,
        "since": duration(since_us),
        "left": None if left_us is None else duration(max(left_us, 0)),
        "slices": slices,
        "rows_read": rows_read,
        "waiting": waiting,
        "commit": commit,
        "barrier": barrier,
    }


class Asker(Protocol[Answer_contra]):
    """One request under way. It may have been abandoned by the time it is told."""

    @property
    def surface(self) -> Surface:
        """How it came: whose change is whose is noted with it."""

    @property
    def origin(self) -> Origin:
        """Made when it is asked for: most requests are over before anybody does."""

    def told(self, answer: Answer_contra | None, lost: BaseException | None) -> None:
        """How it went. Called at most once, and never before the call has returned by which it was
        asked.

        :param lost: why there is no answer, None when there is
        """
