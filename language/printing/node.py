"""Printer of node and INFO statements."""

from __future__ import annotations

from language import tree
from language.keywords import quote
from language.printing.clauses import clause, dotted, join, on_table, text
from language.printing.cluster import endpoints, roles
from language.printing.expressions import print_expression
from language.printing.records import target
from language.printing.statements import STATEMENTS
from protocol.text import quote_string


def _define_node(node: tree.DefineNode) -> str:
    origins = ""
    if node.origins is not None:
        origins = f"ORIGINS {', '.join(map(quote_string, node.origins)) or 'NONE'}"
    return join("DEFINE NODE", roles(node.roles), endpoints(node.endpoints), origins)


def _lead(node: tree.LeadStore) -> str:
    return join("DEFINE NODE LEADS STORE", text("FORCE REASON", node.reason))


def _info(node: tree.Info) -> str:
    if node.subject in ("INDEX", "GROUP"):
        return on_table(f"INFO FOR {node.subject}", *node.names)
    if node.subject == "GRANTS" and node.names:
        return f"INFO FOR GRANTS OF {quote(*node.names)}"
    return join("INFO FOR", node.subject, dotted(*node.names))


def _history(node: tree.InfoHistory) -> str:
    of = node.of
    if isinstance(of, tree.SecurableRef):
        asked = f"{of.kind} {dotted(*of.names)}"
    else:
        asked = target(tree.ExpressionTarget(of))
    paged = clause("BEFORE", node.before), clause("LIMIT", node.limit)
    return join("INFO FOR HISTORY OF", asked, *paged)


def _entries(node: tree.InfoEntries) -> str:
    return join(
        "INFO FOR",
        node.subject,
        clause("BEFORE", node.before),
        clause("LIMIT", node.limit),
        f"OF {quote(node.user)}" if node.user is not None else "",
    )


STATEMENTS.update(
    {
        tree.DefineNode: _define_node,
        tree.LeadStore: _lead,
        tree.Info: _info,
        tree.InfoEntries: _entries,
        tree.InfoHistory: _history,
        tree.Kill: lambda node: f"KILL {print_expression(node.id)}",
    }
)
