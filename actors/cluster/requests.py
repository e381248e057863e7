"""Requests to the actor that coordinates: of statements, of the node's start and its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actors.commits import Who
from protocol.failover import Policy
from protocol.requests import Request
from storage.tickets import CommitTicket


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Said when something has changed that it may be waiting for."""


@dataclass(frozen=True, slots=True)
class Found(Request[CommitTicket | None]):
    """DEFINE FAILOVER: put a policy into force, or another in place of the one that is. Answered
    with the commit that has to be released before it is; None: it is in force."""

    policy: Policy
    who: Who


@dataclass(frozen=True, slots=True)
class Unfound(Request[CommitTicket | None]):
    """DROP FAILOVER. Answered as `Found`."""

    who: Who


@dataclass(frozen=True, slots=True)
class TakeLead(Request[None]):
    """DEFINE NODE LEADS STORE: take the lead, which nobody has."""

    force: bool = False
    """Begin a new lineage: whoever held everything is gone for good."""


@dataclass(frozen=True, slots=True)
class TakeOut(Request[None]):
    """Rule 2: nodes are going to be let go, and leave the set before."""

    nodes: frozenset[str]
    is_over: Callable[[], bool]
    """Whether what lets them go has ended, one way or the other."""


@dataclass(frozen=True, slots=True)
class GiveUpLead(Request[None]):
    """The node stops: another may lead at once, and not only when the lease has lapsed."""
