"""The registry of live requests, with requests that do nothing."""

from __future__ import annotations

from actors.execution.registry import Credential, Registry, credential_of
from protocol.errors import Cancelled, Draining, Refusal
from protocol.values import Value

ANA: Credential = credential_of("ana", "5e551a")


class Live:
    def __init__(self, id: str, began_us: int = 0) -> None:
        self.id, self.began_us = id, began_us
        self.why: Refusal | None = None
        self.cut: list[bool] = []

    def end(self, why: Refusal) -> bool:
        ended, self.why = self.why is None, self.why or why
        return ended

    def on_credential_ended(self, cut: bool, sparing: str | None) -> None:
        self.cut.append(cut)

    def describe(self, now_us: int) -> dict[str, Value]:
        return {"id": self.id, "since": now_us - self.began_us}


def test_a_kill_ends_every_part_of_a_request_once() -> None:
    registry, parts, other = Registry(), [Live("r-1"), Live("r-1")], Live("r-2")
    for one in (*parts, other):
        registry.enter(one)
    assert registry.kill("r-1") and not registry.kill("r-1") and not registry.kill("r-3")
    assert [type(one.why) for one in parts] == [Cancelled] * 2 and other.why is None


def test_neither_a_credential_nor_a_drain_ends_a_wait_for_a_commit() -> None:
    registry, script, answer = Registry(), Live("r-1"), Live("r-2")
    registry.enter(script, ANA, finishes=True)
    registry.enter(answer)
    registry.on_credential_ended("ana", "5e551a", cut=True, sparing=None)
    registry.on_credential_ended("ana", None, cut=True, sparing=None)  # her password: not this one
    assert (script.cut, answer.cut) == ([True], [])
    registry.end_all(Draining("the node is stopping"))
    assert isinstance(script.why, Draining) and answer.why is None


def test_a_request_is_in_once_and_leaves_nothing() -> None:
    registry, one = Registry(), Live("r-1", 5)
    registry.enter(one, ANA, finishes=True)
    registry.enter(one)  # it waits for its commit now: still listed once
    assert registry.describe(7) == [{"id": "r-1", "since": 2}] and registry.unfinished == 1
    registry.leave(one)
    registry.leave(one)
    assert (list(registry), registry.unfinished, registry._by_credential) == ([], 0, {})
