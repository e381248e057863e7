"""Operations on messages asked of a node's engine, as a surface asks them."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from actors.messages.request import MessageRequest, Sender
from actors.node import Node
from protocol.errors import Refusal
from protocol.messages import MessageOperation
from protocol.requests import Caller

_numbers = itertools.count(1)


class Operated:
    """One under way: await it for its answer; a refusal is raised."""

    def __init__(
        self,
        node: Node,
        operation: MessageOperation,
        caller: Caller,
        place: tuple[str, str],
        timeout_us: int | None = None,
    ) -> None:
        self._told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        sender = Sender(f"op-{next(_numbers)}", caller, place)
        self.asked: MessageRequest = node.messages.ask(
            sender, operation, self._hear, timeout_us=timeout_us
        )

    def _hear(self, answer: Any, refusal: Refusal | None) -> None:
        if self._told.cancelled():
            return
        if refusal is not None:
            self._told.set_exception(refusal)
        else:
            self._told.set_result(answer)

    @property
    def told(self) -> bool:
        """Whether it has its answer."""
        return self._told.done()

    def __await__(self) -> Any:
        return self._told.__await__()
