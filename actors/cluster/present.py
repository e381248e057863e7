"""What a node has to show for a read that is to be of the present.

| it is | what it does |
|---|---|
| alone, founding | nothing: nobody else releases anything |
| leading | asks all of the set whether it still does (`rounds.py`) |
| following | asks who leads, which does that and says what it has released |
| waiting | refuses: nobody can say |
"""

from __future__ import annotations

import asyncio

from actors.cluster.leadership import Leadership
from actors.cluster.member import Life, Member
from actors.commits import Committer
from protocol.errors import Busy


def present(member: Member, committer: Committer) -> int | asyncio.Future[int]:
    """A sequence, now or in a while: who shows that shows all that was released anywhere when this
    was called.

    :raises Busy: nobody leads, or is attached to, that this node knows of; also what the future is
        refused with where that comes out later
    """
    if member.life is Life.LEADING and member.leadership is not None:
        return asyncio.ensure_future(_of_leader(member.leadership, committer))
    if member.life is Life.FOLLOWING and member.pursuit is not None:
        return member.pursuit.ask_present()
    if member.life is Life.WAITING:
        raise Busy(f"nobody can say what is current: {member.why}")
    return committer.released_upto


async def _of_leader(leadership: Leadership, committer: Committer) -> int:
    await leadership.rounds.begin()
    own = leadership.own
    if own is None:
        raise Busy("this node has just taken the lead: it does not know yet what was released")
    # Rule 7: what was released before it led it knows once its own first frame is.
    return max(own, committer.released_upto)
