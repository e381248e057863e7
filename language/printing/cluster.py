"""Printer of cluster statements."""

from __future__ import annotations

from language import tree
from language.keywords import quote
from language.printing.clauses import drop, join, text
from language.printing.statements import STATEMENTS
from protocol.text import format_duration, quote_string


def roles(words: tuple[str, ...] | None) -> str:
    """Return the ROLES clause, or an empty text."""
    return "" if words is None else f"ROLES {', '.join(words) or 'NONE'}"


def endpoints(addresses: tuple[str, ...] | None) -> str:
    """Return the ENDPOINTS clause, or an empty text."""
    return f"ENDPOINTS {', '.join(map(quote_string, addresses))}" if addresses else ""


def _define(node: tree.DefineReplica) -> str:
    return join(
        "DEFINE REPLICA",
        node.exists.value,
        quote(node.name),
        text("PEER", node.peer),
        endpoints(node.endpoints),
        text("NODE", node.node),
        text("CERTIFICATE", node.certificate),
        roles(node.roles),
        text("COMMENT", node.comment),
    )


def _alter(node: tree.AlterReplica) -> str:
    changed = roles(node.roles) or text("SET PEER", node.peer)
    if node.leads is not None:
        changed = f"LEADS {'.'.join(map(quote, node.leads)) or 'STORE'}"
    elif not changed:
        changed = f"SET {endpoints(node.endpoints)}"
    return f"ALTER REPLICA {quote(node.name)} {changed}"


def _token(node: tree.CreateJoinToken) -> str:
    return join(
        "CREATE JOIN TOKEN",
        "" if node.name is None else f"FOR {quote(node.name)}",
        "" if node.expires is None else f"EXPIRES {format_duration(node.expires)}",
    )


def _failover(node: tree.DefineFailover) -> str:
    return join(
        f"DEFINE FAILOVER VIA {', '.join(map(quote_string, node.via))}",
        f"LEASE {format_duration(node.lease)}",
        f"ACKS {node.acks}",
        f"BEHIND {format_duration(node.behind)}",
        f"PROMOTE {node.promote}",
    )


STATEMENTS.update(
    {
        tree.DefineReplica: _define,
        tree.AlterReplica: _alter,
        tree.DropReplica: lambda node: drop("REPLICA", node, node.name),
        tree.CreateJoinToken: _token,
        tree.RevokeCertificate: lambda node: join(
            f"REVOKE CERTIFICATE {quote_string(node.certificate)}", text("REASON", node.reason)
        ),
        tree.DefineFailover: _failover,
        tree.DropFailover: lambda node: join("DROP FAILOVER", text("REASON", node.reason)),
    }
)
