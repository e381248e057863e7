"""The shop of examples/ does what it says, and its drill sees a worker that does not."""

from __future__ import annotations

import ast
import contextlib
import subprocess
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.shop import drill, shop
from storeclient import Client, Database, OutcomeUnknown, RecordId, errors
from tests.architecture.sources import ROOT, Source, files
from tests.processes import PASSWORD, USER, environment, serving

SHOP = "examples/shop"
LAMP = RecordId("product", "lamp")
CLIENT = str(ROOT / "clients" / "python")


def lines_of_code(source: Source) -> int:
    """Lines that are neither empty, nor a comment, nor a docstring."""
    said = set[int]()
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            said.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in said
        for number, line in enumerate(source.text.splitlines(), 1)
    )


def test_shop_stays_a_first_example() -> None:
    assert sum(map(lines_of_code, files(SHOP))) < 200


@pytest.mark.parametrize(
    "program",
    ["python/example/shop.py", "go/example/shop/main.go", "typescript/example/shop.ts",
     "rust/examples/shop.rs", "kotlin/example/Shop.kt"],
)  # fmt: skip
def test_small_shop_of_each_client_stays_small(program: str) -> None:
    assert len((ROOT / "clients" / program).read_text(encoding="utf-8").splitlines()) < 150


@pytest.mark.hard
def test_small_shop_of_the_python_client_runs(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as node:
        address = "{}:{}".format(*node.address("wire"))
        ran = subprocess.run(
            [sys.executable, "clients/python/example/shop.py", address, USER, PASSWORD, "20"],
            env=environment(PYTHONPATH=CLIENT),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    assert "<h1>lamp</h1>" in ran.stdout and ran.stdout.endswith("\n20 sold\n")


def test_nothing_is_lost_or_done_twice(figure: Callable[[str, object], None]) -> None:
    """As its page says to run it: a node, two kills, every order looked at."""
    path = f"{ROOT}:{CLIENT}"
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples.shop.drill", "60"],
        env=environment(PYTHONPATH=path),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout == "60 orders, two kills: none lost, each shipped once\n"
    figure("orders of the shop under two kills", 60)


def test_planted_worker_in_two_steps_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ship, then acknowledge: between the two the message may go to somebody else."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)

    def work(db: Database) -> None:
        late = False
        with db.topic("orders").group("shipping").messages(prefetch=8) as messages:
            for message in messages:
                db.run(shop.SHIP, {"order": message.value["order"]}, repeatable=True)
                while not late and datetime.now(UTC) < message.deadline:
                    pass_the_time(db)
                late = True
                with contextlib.suppress(OutcomeUnknown):
                    message.ack()

    faults = drill.drill(tmp_path, 30, work)
    assert faults and all("was shipped" in fault for fault in faults), faults
    assert any("was shipped 2 times" in fault for fault in faults), faults


def pass_the_time(db: Database) -> None:
    """Something that takes a moment and changes nothing."""
    db.query("SELECT * FROM product", repeatable=True)


def test_rules_of_the_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drill, "STOCK", 3)
    with (
        serving(tmp_path / "store") as node,
        Client("{}:{}".format(*node.address("wire")), user=USER, password=PASSWORD) as client,
    ):
        db = shop.open_shop(client)
        shop.open_shop(client)  # again: what is there stays
        db.run("CREATE $lamp SET stock = 3", {"lamp": LAMP})
        ana = shop.sign_up(db, "ana@example.org")
        with pytest.raises(errors.Duplicate):
            shop.sign_up(db, "ana@example.org")
        assert db.cache("sessions").ttl(ana)
        with pytest.raises(PermissionError, match="sign in"):
            shop.place_order(db, "nobody", LAMP, 1)

        orders = [shop.place_order(db, ana, LAMP, 2)]
        for refused, product, count in (
            (errors.AssertFailed, LAMP, 2),  # sold out
            (errors.AssertFailed, LAMP, -2),
            (errors.Thrown, RecordId("product", "none"), 1),
        ):
            with pytest.raises(refused):
                shop.place_order(db, ana, product, count)
        orders.append(shop.place_order(db, ana, LAMP, 1))
        assert db.query("SELECT VALUE stock FROM ONLY product:lamp") == 0
        for _ in range(shop.ORDERS_A_MINUTE - 5):
            with pytest.raises(errors.AssertFailed):
                shop.place_order(db, ana, LAMP, 1)
        with pytest.raises(PermissionError, match="too many"):
            shop.place_order(db, ana, LAMP, 1)

        # Sent again after an outage: it is known before its email and its stock are.
        for script, table in ((shop.SIGN_UP, "customer"), (shop.ORDER, "order")):
            (row,) = db.query(f"SELECT * FROM {table} LIMIT 1")
            with pytest.raises(errors.AlreadyExists):
                db.run(script, {**row, table: row["id"]})

        # What the drill would say: nothing has been shipped, an order is lost, the stock is wrong.
        lost = RecordId("order", uuid.uuid4())
        db.run("UPDATE product:lamp SET stock += 1")
        faults = drill.check(db, [*orders, lost])
        assert sorted(faults) == sorted(
            [
                f"{lost} was acknowledged and is lost",
                *(f"{order} was shipped 0 times" for order in orders),
                "product:lamp: 1 left and 3 sold of 3",
            ]
        )


def test_shop_runs_as_its_page_says(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as node:
        ran = subprocess.Popen(
            [sys.executable, "-m", "examples.shop.shop", "{}:{}".format(*node.address("wire"))],
            env=environment(PYTHONPATH=f"{ROOT}:{CLIENT}"),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert ran.stdout is not None
            assert ran.stdout.readline().startswith("placed order:")
            script = "SELECT VALUE state FROM order"
            while node.script(script, ns="shop", db="main")["results"][0]["value"] != ["shipped"]:
                assert ran.poll() is None
        finally:
            ran.kill()
            ran.communicate()
