"""Live requests of a node, as tests look at them."""

from __future__ import annotations

from actors.node import Node
from actors.scripts.request import ScriptRequest
from actors.scripts.transactions import ScriptRun


def running_scripts(node: Node) -> list[ScriptRun]:
    """Return the running scripts, in the order of their first pause."""
    return [one.run for one in node.registry if isinstance(one, ScriptRequest) and one.is_running]
