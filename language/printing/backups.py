"""Printer of backup statements."""

from __future__ import annotations

from language import tree
from language.printing.clauses import dotted, join, text
from language.printing.statements import STATEMENTS


def _backup(node: tree.Backup) -> str:
    return join(
        "BACKUP",
        "" if node.form == "STATE" else node.form,
        "" if node.first is None else f"FROM {node.first}",
        f"OF {', '.join(map(_part, node.places))}" if node.places else "",
        text("TO", node.to),
    )


def _part(place: tree.SecurableRef) -> str:
    prefix = "NAMESPACE " if place.kind == "NAMESPACE" else ""
    return prefix + dotted(*place.names)


def _restore_script(node: tree.RestoreScript) -> str:
    return join(text("RESTORE SCRIPT FROM", node.name), "CHECK" if node.check else "")


STATEMENTS[tree.Backup] = _backup
STATEMENTS[tree.RestoreScript] = _restore_script
