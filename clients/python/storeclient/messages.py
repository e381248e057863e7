"""Messages of topics, and the two ways to address a topic: scripts and operations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from storeclient.answers import Answer
from storeclient.rows import PendingRow


class RunScript(Protocol):
    """Runs a script in the topic's database."""

    async def __call__(
        self,
        script: str,
        params: dict[str, Any],
        *,
        wait: timedelta | None = None,
        repeatable: bool = False,
        stop: asyncio.Future[None] | None = None,
    ) -> Answer:
        """:param wait: time that the script itself may wait, on top of the client's time-out
        :param repeatable: the script is idempotent
        :param stop: ends the script early once it is done; its answer is still awaited
        """


class AskTopic(Protocol):
    """Executes one operation on the topic's messages, and returns the fields of its answer."""

    async def __call__(
        self,
        op: str,
        fields: dict[str, Any],
        *,
        wait: timedelta | None = None,
        stop: asyncio.Future[None] | None = None,
        place: PendingRow | None = None,
    ) -> dict[str, Any]:
        """:param fields: arguments besides the topic's database and name
        :param wait: time that it may wait, on top of the client's time-out
        :param stop: ends the operation early once it is done
        :param place: position among concurrent requests that must run in order
        """


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: one for name, one in fields.items() if one is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a topic."""

    position: int
    at: datetime
    """Log time of its commit."""
    key: str | None
    id: str | None
    headers: dict[str, str]
    value: Any
    bytes: int
    """Size in the store, in bytes."""
    due: datetime | None
    """Time before which no group delivers it; None: immediately."""


_FIELDS: Final = ("position", "at", "key", "id", "headers", "value", "bytes")


def message_fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `Message` from the node's answer."""
    fields = {name: found[name] for name in _FIELDS}
    fields["due"] = found.get("due")
    return fields
