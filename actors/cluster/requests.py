"""Requests to the coordination actor, from statements and from the node's start and stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actors.commits import Author
from protocol.failover import Policy
from protocol.requests import Request
from storage.txn.tickets import CommitTicket


@dataclass(frozen=True, slots=True)
class RunIteration:
    """Run an iteration now: a condition that it may wait for has changed."""


@dataclass(frozen=True, slots=True)
class PutPolicyInForce(Request[CommitTicket | None]):
    """DEFINE FAILOVER: put a policy into force, or replace the present one.

    Answered with the commit whose release puts it into force; None: it is in force.
    """

    policy: Policy
    who: Author


@dataclass(frozen=True, slots=True)
class DropPolicy(Request[CommitTicket | None]):
    """DROP FAILOVER. Answered as `PutPolicyInForce`."""

    who: Author


@dataclass(frozen=True, slots=True)
class TakeLead(Request[None]):
    """DEFINE NODE LEADS STORE: take the vacant lead."""

    force: bool = False
    """True to begin a new lineage: all other members of the ISR are gone for good."""


@dataclass(frozen=True, slots=True)
class RemoveFromIsr(Request[None]):
    """Cluster rule 2: take nodes out of the ISR, before a statement shuts them out."""

    nodes: frozenset[str]
    is_over: Callable[[], bool]
    """Returns True when that statement has ended, committed or not."""


@dataclass(frozen=True, slots=True)
class GiveUpLead(Request[None]):
    """Give up the lead since the node stops: another node may lead at once, before the lease
    lapses."""
