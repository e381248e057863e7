"""Who may do what: the one place that decides.

Rights are those of the user as stored now, not as they were at sign-in: sessions end with a change
of role, so a caller that comes here has its present role.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protocol.errors import NotAllowed
from protocol.requests import Caller

OWNER: Final = "owner"


@dataclass(frozen=True, slots=True)
class Action:
    """Something to be done to something.

    :param verb: one of READ WRITE CONSUME DEFINE INFO ADMINISTER
    :param noun: what it is done to, as a message shows it: `TABLE shop.main.order`, `NODE`
    """

    verb: str
    noun: str

    def __str__(self) -> str:
        return f"{self.verb} ON {self.noun}"


def authorise(caller: Caller, action: Action) -> None:
    """Nothing, when the caller may do it.

    :raises NotAllowed: it may not; `detail.needs` names what is missing
    """
    if caller.role == OWNER and caller.space is None:
        return
    raise NotAllowed(f"{caller.user} may not: {action} is needed", needs=str(action))
