"""Who made a request on a surface, and hears what came of it.

Engines do what is asked on the loop, at once, and answer by returning if nothing has to be waited
for. What has to wait tells its asker later: that is no future, since most of what an asker does
with an answer is to write it out, and a future's turn of the loop costs more than that.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from protocol.requests import Surface

Answer_contra = TypeVar("Answer_contra", contravariant=True)


class Origin(NamedTuple):
    """Where a request came from, as INFO FOR RUNNING shows it."""

    request: str
    """Names it, as KILL does."""
    surface: Surface
    address: str


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
