"""Requesters: the origin of an operation, and the callback that gets its result.

Engines run an operation on the loop at once and return its result if nothing has to be waited for.
Otherwise `Requester.on_result` gets it later. No future: writing the answer out is most of the
work, and a future costs one more loop iteration.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from protocol.requests import Caller, Surface
from protocol.text import duration
from protocol.values import Value

Answer_contra = TypeVar("Answer_contra", contravariant=True)


class RequestOrigin(NamedTuple):
    """Origin of a request, as INFO FOR RUNNING shows it."""

    request: str
    """Names it, as KILL does."""
    surface: Surface
    address: str

    @classmethod
    def of(cls, request: str, caller: Caller) -> RequestOrigin:
        """Return that of a caller's request."""
        return cls(request, caller.surface, caller.address)


def described(
    origin: RequestOrigin,
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
    # One set of columns for requests of every kind: the answer is a table.
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
        # Not negative: a deadline may pass before its timer fires.
        "left": None if left_us is None else duration(max(left_us, 0)),
        "slices": slices,
        "rows_read": rows_read,
        "waiting": waiting,
        "commit": commit,
        "barrier": barrier,
    }


class Requester(Protocol[Answer_contra]):
    """Requester of one operation. It may have been abandoned when its result comes."""

    @property
    def surface(self) -> Surface:
        """Surface of the request, recorded with its changes."""

    @property
    def origin(self) -> RequestOrigin:
        """Origin, made on demand: most requests end before it is needed."""

    def on_result(self, answer: Answer_contra | None, lost: BaseException | None) -> None:
        """Receive the result. Called at most once, never before the requesting call has returned.

        :param lost: the reason why there is no answer; None: there is one
        """
