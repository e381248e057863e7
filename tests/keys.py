"""Operations on keys, asked of a node as a surface does, for tests that await the answers."""

from __future__ import annotations

import asyncio

from actors.execution.request import RequestOrigin
from actors.node import Node
from actors.spaces import SEQ, Answers, CallerOrToken, Names
from protocol.requests import Surface
from protocol.spaces import KeyOperation, Room


class Asking:
    """An asker whose answers are awaited: the operations' own fields, and apart from them at which
    commits they were done."""

    def __init__(self, who: CallerOrToken, request: str, address: str = "192.0.2.1:1") -> None:
        self.surface: Surface = "http" if isinstance(who, bytes) else who.surface
        self.origin = RequestOrigin(request, self.surface, address)
        self.connection = self.origin.address
        self.heard: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self.commits: list[int | None] = []

    def on_result(self, answer: Answers | None, lost: BaseException | None) -> None:
        if answer is not None:
            for one in answer:
                self.commits.append(one.pop(SEQ, None) if type(one) is dict else None)
            self.heard.set_result(answer)
        else:
            assert lost is not None
            self.heard.set_exception(lost)


def ask_keys(
    node: Node,
    who: CallerOrToken,
    names: Names,
    *operations: KeyOperation,
    room: Room | None = None,
    request: str = "",
    address: str = "192.0.2.1:1",
) -> asyncio.Future[Answers]:
    """The answers, refusals among them; what is refused as a whole is raised."""
    asking = Asking(who, request, address)
    try:
        found = node.spaces.run(asking, who, names, operations, room)
    except Exception as error:
        asking.on_result(None, error)
    else:
        if found is not None:
            asking.on_result(found, None)
    return asking.heard
