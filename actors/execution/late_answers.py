"""Ends of answers that wait for commits which are not released in time.

The commits stay pending, and the node itself waits on: only the waits of clients end.
"""

from __future__ import annotations

from collections.abc import Iterator

from actors.commits.tickets import CommitTickets, late
from actors.execution.request import Request
from protocol.errors import Refusal


def waiting_answers(commits: CommitTickets) -> Iterator[Request]:
    """Yield the answers that wait for commits and can be ended."""
    for wait in commits.blocked:
        # An earlier one may have ended it meanwhile.
        if isinstance(wait, Request) and wait.waits:
            yield wait


def end_waits(commits: CommitTickets, upto: int, began_us: int, why: Refusal) -> None:
    """End the waits of clients for commits up to a sequence.

    :param began_us: only waits that began before, on the monotonic clock
    :param why: for those that wrote nothing; others get UnknownOutcome
    """
    for wait in commits.blocked:
        # An ended wait may have ended this one, or brought its request to another.
        if wait.queue is not commits.blocked or wait.key > upto:
            continue
        if not 0 <= wait.began_us <= began_us:
            continue
        if isinstance(wait, Request):
            wait.end(why)
        else:
            commits.blocked.unblock_one(wait, late(wait.key, why))


def end_reads(commits: CommitTickets, began_us: int, why: Refusal) -> None:
    """End the waits of clients that have only read pending commits, refusals that rest on them
    included.

    :param began_us: only waits that began before, on the monotonic clock
    :param why: for the clients
    """
    for answer in waiting_answers(commits):
        # Its own commits are released, or there are none: it has only seen those of others.
        if commits.is_released(answer.written) and answer.began_us <= began_us:
            answer.end(why)
