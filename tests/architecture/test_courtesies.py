"""Calls that only make the node a better neighbour stand in `with COURTESY:`, in one way."""

from __future__ import annotations

import ast

from tests.architecture.sources import ROOMS, Source, files

COURTESIES = {
    "nice", "setpriority", "sched_setaffinity", "sched_setscheduler", "sched_setparam",
    "posix_fadvise", "madvise", "mlock", "mlockall", "ioprio_set", "pthread_setname_np",
}  # fmt: skip


def violations(source: Source) -> list[str]:
    """Courtesies whose refusal by the system would be raised."""
    kept = {
        id(inside)
        for node in source.nodes
        if isinstance(node, ast.With)
        and any(ast.unparse(item.context_expr) == "COURTESY" for item in node.items)
        for inside in ast.walk(node)
    }
    return [
        f"{source.path}:{node.lineno} calls {node.func.attr}"
        for node in source.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in COURTESIES and id(node) not in kept
    ]


def test_a_courtesy_that_is_refused_is_done_without() -> None:
    found = [line for source in files(*ROOMS) for line in violations(source)]
    assert not found, "\n".join(found)


def test_a_planted_courtesy_is_caught() -> None:
    planted = "def give_way():\n    os.setpriority(os.PRIO_PROCESS, 0, 5)\n"
    assert violations(Source("actors/planted.py", planted)) == [
        "actors/planted.py:2 calls setpriority"
    ]
    honest = planted.replace("    os", "    with COURTESY:\n        os")
    assert not violations(Source("actors/planted.py", honest))
