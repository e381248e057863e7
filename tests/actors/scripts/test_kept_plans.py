"""What is kept of texts that have come: bounded, the newest, and never a secret."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.scripts import plans
from actors.scripts.plans import Plan, Plans, rowless
from actors.scripts.writing import plan_targets
from language import tree
from language.names import children
from language.parser import parse
from protocol import limits
from protocol.errors import Refusal
from tests.nodes import Running, running

SECRET = ("hunter", "2hunter2")
"""In pieces: the tests look for the whole in all that the process holds."""
WITH_SECRETS = (
    "DEFINE USER ana ROLE owner PASSWORD '{}'",
    "DEFINE USER ana ROLE owner PASSHASH '$argon2id$v=19$m=64,t=1,p=1${}$aaaaaaaaaaaaaaaaaaaaaa'",
    "ALTER USER root SET PASSWORD '{}'",
    "RETURN 1; ALTER USER root SET PASSWORD '{}'; RETURN 2",
    "BEGIN; DEFINE USER ana ROLE owner PASSWORD '{}'; CANCEL",
    "IF true {{ RETURN 1 }} ELSE {{ ALTER USER root SET PASSWORD '{}' }}",
    "FOR $x IN [1] {{ IF $x = 2 {{ DEFINE USER ana ROLE owner PASSWORD '{}' }} }}",
    "LET $x = IF false {{ DEFINE USER ana ROLE owner PASSWORD '{}' }}",
    "RETURN IF false {{ DEFINE USER ana ROLE owner PASSWORD '{}' }}",
    "DEFINE USER ana ROLE owner PASSWORD '{}' oops",
)


def tick() -> None:
    """Nobody else waits."""


def held() -> list[type]:
    """Types of what holds a text with the secret, as far as the collector knows them."""
    gc.collect()
    wanted = "".join(SECRET)
    found = []
    for one in gc.get_objects():
        for part in gc.get_referents(one):
            if type(part) is str and wanted in part and part != wanted:
                found.append(type(one))
    return found


async def said(node: Running, text: str) -> None:
    answer = await node.answer(text.format("".join(SECRET)))
    assert answer.refusal is None or isinstance(answer.refusal, Refusal)


async def all_said(directory: Path) -> list[type]:
    async with running(directory) as node:
        for text in WITH_SECRETS:
            await said(node, text)
        return held()


async def test_nothing_keeps_a_text_that_holds_a_secret(tmp_path: Path) -> None:
    assert await all_said(tmp_path / "store") == []


@pytest.mark.parametrize("text", WITH_SECRETS[:-1])
def test_a_text_that_holds_a_secret_is_planned_each_time(text: str) -> None:
    kept = Plans()
    assert kept.get(text.format("x"), tick) is not kept.get(text.format("x"), tick)
    assert len(kept) == kept.bytes == 0


def selects(node: Any) -> Iterator[tree.Select]:
    if isinstance(node, tree.Select):
        yield node
    for child in children(node):
        yield from selects(child)


def compile_all(plan: Plan) -> None:
    """As at their first run."""
    for statement in plan.script.statements:
        for select in selects(statement):
            plan.step(select).compiled()
        if isinstance(statement, tree.Update | tree.Delete):
            plan.made(statement, plan_targets)


KEPT_NOWHERE = (
    "WRITE 'card' IN VAULT v VALUE (SELECT VALUE n + '{}' FROM ONLY t:1)",
    "SELECT VALUE id FROM t WHERE s = '{}'",
    "UPDATE t SET n = 1 WHERE s = '{}'; DELETE t WHERE s = '{}'",
    "SELECT `{}` FROM t WHERE `{}` = 1 ORDER BY `{}`",
)


def test_nothing_else_keeps_what_was_compiled_of_a_text() -> None:
    """The SELECT in a WRITE, and literals and names of megabytes, stayed for good."""
    kept, made = Plans(), []
    for text in KEPT_NOWHERE:
        made.append(
            kept.get(text.replace("{}", "x" * plans.KEPT_TEXT_CHARACTERS + "".join(SECRET)), tick)
        )
        compile_all(made[-1])
    assert held()
    made.clear()
    assert held() == [] and len(kept) == 0


def test_a_select_is_compiled_once_for_a_plan() -> None:
    plan = Plans().get("RETURN (SELECT VALUE n FROM t)", tick)
    (select,) = selects(plan.script.statements)
    step = plan.step(select)
    work = step.compiled()
    assert plan.step(select) is step and step.work is work


def test_others_are_planned_once() -> None:
    kept = Plans()
    for text in ("RETURN 1", "ALTER USER ana SET ROLE owner", "DROP USER ana", "INFO FOR USERS"):
        assert kept.get(text, tick) is kept.get(text, tick)
    assert len(kept) == 4


def test_every_field_that_is_not_shown_is_a_secret() -> None:
    """Whoever adds a statement with a secret hides it from its repr and marks it, or neither."""
    found: dict[str, Any] = {}
    for kind in vars(tree).values():
        for name, field in getattr(kind, "__dataclass_fields__", {}).items():
            if not field.repr and kind is not tree.Script:
                found[f"{kind.__name__}.{name}"] = field.metadata.get("secret")
            else:
                assert not field.metadata.get("secret"), f"{kind.__name__}.{name} is shown"
    always = ("DefineUser.password", "DefineUser.passhash", "AlterUser.password")
    unless_bound = (
        "WriteSecret.id", "WriteSecret.value", "RevealSecret.id", "EraseSecret.id",
        "ListSecrets.prefix", "ListSecrets.after",
    )  # fmt: skip
    expected: dict[str, Any] = dict.fromkeys((*always, "DefineVault.passphrase"), True)
    assert found == expected | dict.fromkeys(unless_bound, "unless bound")


def test_the_least_recently_used_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "KEPT_PLANS", 3)
    kept = Plans()
    first = kept.get("RETURN 1", tick)
    second = kept.get("RETURN 2", tick)
    kept.get("RETURN 3", tick)
    assert kept.get("RETURN 1", tick) is first
    kept.get("RETURN 4", tick)
    assert len(kept) == 3
    assert kept.get("RETURN 1", tick) is first
    assert kept.get("RETURN 2", tick) is not second


def test_what_is_kept_is_bounded_in_bytes() -> None:
    one = Plans()
    one.get("RETURN [1000, 1]", tick)
    room = one.bytes * plans.LARGE_PART
    kept = Plans(room)
    for number in range(1000, 1100):
        kept.get(f"RETURN [{number}, 1]", tick)
        assert kept.bytes <= room
    assert len(kept) == plans.LARGE_PART
    before = len(kept)
    kept.get("RETURN [1000, 1, 1, 1]", tick)
    assert len(kept) == before, "it is larger than what one may take"


def test_what_is_planned_twice_at_once_counts_once() -> None:
    kept = Plans(limits.MIB * 256)

    def meanwhile() -> None:
        if not others:
            others.append(None)
            kept.get(text, meanwhile)

    others: list[None] = []
    text = "RETURN [" + "1," * 6_000 + "1]"
    kept.get(text, meanwhile)
    assert others, "no other one came while it was parsed"
    alone = Plans(limits.MIB * 256)
    alone.get(text, tick)
    assert (len(kept), kept.bytes) == (1, alone.bytes)


def test_a_long_text_of_data_is_not_kept() -> None:
    kept = Plans()
    kept.get("RETURN '" + "x" * plans.KEPT_TEXT_CHARACTERS + "'", tick)
    assert len(kept) == 0
    # Thousands of statements of one character: 6 MB of closures in 16 KB of text.
    kept.get(";".join("1" * 8_000), tick)
    assert len(kept) == 0


def test_a_plan_weighs_about_what_is_said() -> None:
    for text in ("SELECT * FROM $id", "RETURN [" + "1," * 2_000 + "1]", ";".join("1" * 1_000)):
        Plan(parse(text, tick))
        gc.collect()
        tracemalloc.start()
        try:
            plan = Plan(parse(text, tick))
            for statement in plan.script.statements:
                if isinstance(statement, tree.Evaluate):
                    plan.step(statement).compiled()
                    plan.made(statement.value, rowless)
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        kept = Plans(limits.MIB * 64)
        kept.get(text, tick)
        assert taken <= kept.bytes * 1.25, text
