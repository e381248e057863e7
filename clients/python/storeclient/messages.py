"""A message as the node answers it, and how topics are asked: by scripts, and by operations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from storeclient.answers import Answer
from storeclient.rows import Place


class Run(Protocol):
    """Runs a script at the topic's place."""

    async def __call__(
        self,
        script: str,
        params: dict[str, Any],
        *,
        wait: timedelta | None = None,
        repeatable: bool = False,
        stop: asyncio.Future[None] | None = None,
    ) -> Answer:
        """:param wait: how long the script itself may wait, on top of the client's timeout
        :param repeatable: running it twice does no harm
        :param stop: ends the script early once it is done; its answer is waited for
        """


class Ask(Protocol):
    """Does one operation on the topic's messages; answers its fields."""

    async def __call__(
        self,
        op: str,
        fields: dict[str, Any],
        *,
        wait: timedelta | None = None,
        stop: asyncio.Future[None] | None = None,
        place: Place | None = None,
    ) -> dict[str, Any]:
        """:param fields: what it takes beside the topic's place and name
        :param wait: how long it may wait, on top of the client's timeout
        :param stop: as of `Run`
        :param place: among those that are under way with it, and are to be done in order
        """


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are given."""
    return {name: one for name, one in fields.items() if one is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a topic."""

    position: int
    at: datetime
    """When it was committed, by the node's log time."""
    key: str | None
    id: str | None
    headers: dict[str, str]
    value: Any
    bytes: int
    """What it takes in the store."""
    due: datetime | None
    """Groups get it from then on; None: at once."""


_FIELDS: Final = ("position", "at", "key", "id", "headers", "value", "bytes")


def message_fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `Message` in what the node answers."""
    fields = {name: found[name] for name in _FIELDS}
    fields["due"] = found.get("due")
    return fields
