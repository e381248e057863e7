"""The metrics of topics, for GET /metrics."""

from __future__ import annotations

from dataclasses import dataclass

from storage.groups import groups
from storage.hand_outs import HandOuts
from storage.messages import Messages
from storage.topics import Topic
from storage.transactions import Transaction


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """What /metrics shows of a group."""

    name: str
    lag: int
    pending: int
    waiting: int
    in_flight: int
    redelivered: int
    dead_lettered: int


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """What /metrics shows of a topic."""

    namespace: str
    database: str
    name: str
    messages: int
    last_position: int
    readers: tuple[tuple[str, int], ...]
    """Names and lags."""
    groups: tuple[GroupFigures, ...]
    refused: int
    """How often what was due on it was refused."""


def figures_of(tx: Transaction, topic: Topic, refused: int) -> TopicFigures:
    """Those of one topic. :param refused: how often what was due on it was refused"""
    messages = Messages(tx, topic)
    found = []
    for group in groups(tx, topic):
        figures = HandOuts(tx, group).figures()
        found.append(
            GroupFigures(
                group.name,
                figures["lag"],
                figures["pending"],
                figures["waiting"],
                figures["in_flight"],
                figures["redelivered"],
                figures["dead_lettered"],
            )
        )
    return TopicFigures(
        topic.database.namespace.name,
        topic.database.name,
        topic.name,
        messages.count,
        messages.last,
        tuple((name, messages.lag(position)) for name, position in messages.readers()),
        tuple(found),
        refused,
    )
