"""Both clients against a real node: real disk, real sockets, real threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from bench.ports import free_port
from storeclient import AsyncClient, OutcomeUnknown, RecordId, errors
from tests.clients.real import client_of, real_node
from tests.processes import PASSWORD as PROCESS_PASSWORD
from tests.processes import USER, NodeProcess
from tests.surfaces.wire.peers import until

EVERY_TYPE: dict[str, Any] = {
    "null": None,
    "bool": True,
    "int": 2**63 - 1,
    "least": -(2**63),
    "float": 0.1,
    "decimal": Decimal("12.30"),
    "string": "naïve ☃ 'quoted'",
    "bytes": bytes(range(256)),
    "datetime": datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC),
    "before": datetime(1931, 1, 2, 3, 4, 5, 7, tzinfo=UTC),
    "duration": timedelta(days=-3, microseconds=7),
    "uuid": UUID("018f0000-0000-7000-8000-000000000001"),
    "record": RecordId("person", ["a", 1]),
    "array": [1, [2.5, [Decimal("1")]], "x"],
    "object": {"b c": {"d": []}},
}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with client_of(tmp_path / "store", "DEFINE TABLE item") as client:
        yield client


async def test_a_cancelled_task_ends_its_script(tmp_path: Path) -> None:
    async with real_node(tmp_path / "store") as node, node.client() as client:
        endless = "FOR $i IN 0..900000 { FOR $j IN 0..900000 { LET $x = $j } }"
        task = asyncio.create_task(client.run(endless))
        await until(lambda: node.surface.running == 1)
        assert await client.query("RETURN 1") == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: node.surface.running == 0)


async def test_a_wrong_password_and_a_dropped_user(client: AsyncClient) -> None:
    where = client._nodes.where
    await client.run("DEFINE USER bob ROLE owner PASSWORD 'a good password'")
    wrong = AsyncClient(where, user="bob", password="another password")
    with pytest.raises(errors.SignInRefused):
        await wrong.connect()
    await wrong.close()
    async with AsyncClient(where, user="bob", password="a good password") as bob:
        assert await bob.query("RETURN 1") == 1
        await client.run("DROP USER bob")
        with pytest.raises((errors.SignInRefused, errors.SessionEnded)):
            await bob.query("RETURN 1")


MakeProcess = Callable[[str], NodeProcess]


class TestProcess:
    @pytest.fixture
    def make(self, tmp_path: Path) -> Iterator[MakeProcess]:
        """Makes processes on one store, for an address; what a failed test leaves is killed."""
        made: list[NodeProcess] = []

        def make(address: str) -> NodeProcess:
            made.append(NodeProcess(tmp_path / "store", ("--serve", address)))
            return made[-1]

        yield make
        for node in made:
            if hasattr(node, "process") and node.process.poll() is None:
                node.kill()

    async def test_killed_and_started_again(self, make: MakeProcess) -> None:
        """What was answered is there; what was under way is unknown, and never sent twice."""
        at = f"127.0.0.1:{free_port()}"
        first, again = make(at).start(), make(at)
        answered: list[int] = []
        unknown: list[int] = []
        async with AsyncClient(
            at, user=USER, password=PROCESS_PASSWORD, connect_timeout=60
        ) as client:
            await client.run("DEFINE NAMESPACE shop; DEFINE DATABASE shop.main")
            client.use("shop", "main")
            await client.run("DEFINE TABLE item")
            stop = asyncio.Event()
            numbers = iter(range(1_000_000))

            async def create() -> None:
                while not stop.is_set():
                    n = next(numbers)
                    try:
                        await client.run("CREATE $id SET n = 1", {"id": RecordId("item", n)})
                        answered.append(n)
                    except OutcomeUnknown:
                        unknown.append(n)

            tasks = [asyncio.create_task(create()) for _ in range(8)]
            await until(lambda: len(answered) > 50)
            first.kill()
            await asyncio.to_thread(again.start)
            mark = len(answered)
            await until(lambda: len(answered) > mark + 20)
            stop.set()
            await asyncio.gather(*tasks)
            rows = await client.query("SELECT VALUE id FROM item")
        found = {row.id for row in rows}
        assert set(answered) <= found
        assert found <= set(answered) | set(unknown)
        assert unknown
        assert await asyncio.to_thread(again.stop) == 0
