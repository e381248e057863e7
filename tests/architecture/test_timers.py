"""An actor's timers end with it: they are set with `LoopActor.after`, and with nothing else."""

from __future__ import annotations

import ast

from tests.architecture.sources import Source, called, files

TIMED = {"call_later", "call_at"}


def violations(source: Source) -> list[str]:
    """Timers that a loop actor sets past `after`."""
    found = []
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and _is_loop_actor(node):
            inside = Source(source.path, ast.unparse(node))
            for _, name in called(inside):
                if name.rpartition(".")[2] in TIMED:
                    found.append(f"{source.path}: {node.name} calls {name}")
    return found


def _is_loop_actor(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "LoopActor" for base in node.bases)


def test_actors_set_timers_that_end_with_them() -> None:
    found = [line for source in files("actors", "surfaces") for line in violations(source)]
    assert not found, "\n".join(found)


def test_a_planted_timer_is_caught() -> None:
    planted = """
class OneActor(LoopActor):
    def on_start(self) -> None:
        self.runtime.loop.call_later(1, self._look)

class NoActor:
    def begin(self) -> None:
        self.loop.call_later(1, self._look)
"""
    assert violations(Source("actors/planted.py", planted)) == [
        "actors/planted.py: OneActor calls self.runtime.loop.call_later"
    ]
    honest = planted.replace("self.runtime.loop.call_later", "self.after")
    assert violations(Source("actors/planted.py", honest)) == []
