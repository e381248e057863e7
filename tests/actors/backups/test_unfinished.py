"""A snapshot that was taken while a script was being restored, restored itself: the places that the
script was filling are dropped, once the node that has it takes changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from actors.backups.restoring import RestoreOptions, restore
from actors.commits.committer import NODE
from actors.environment import system_environment
from actors.node import start
from actors.runtime import ask
from actors.settings import NodeSettings
from actors.vaults.keyring import STORE
from protocol.errors import (
    Conflict,
    NotEnoughReplicas,
    NotWritable,
    Refusal,
    SessionEnded,
)
from protocol.requests import SignIn
from storage.backups.state_builder import no_progress
from storage.catalog import places as catalog_places
from storage.catalog import restores
from storage.engine.engine import EngineUnreadable
from storage.vaults import trail
from tests.logbook import Logbook
from tests.nodes import CHEAP, Running, running


async def half_done(folder: Path, store: Path) -> None:
    """A snapshot of a node that fills places, and comes no farther."""
    async with running(store, settings={"backup_dir": str(folder)}) as here:
        await here.values(
            "DEFINE NAMESPACE mine; DEFINE DATABASE mine.d; USE mine.d; DEFINE TABLE t"
        )
        committer = here.node.committer
        with committer.begin_transaction() as tx:
            namespace = catalog_places.define_namespace(tx, "half")
            database = catalog_places.define_database(tx, namespace, "done")
            for place in (namespace, database):
                restores.mark(tx, place)
            ticket = committer.commit(tx, NODE)
        await committer.released(ticket)
        await here.values(
            "USE half.done; DEFINE TABLE t; CREATE t:1; DEFINE SPACE s; SET 'k' IN s VALUE 1;"
            "DEFINE TOPIC q; PUBLISH INTO q VALUE 1"
        )
        await here.value("BACKUP TO 'x'")


async def places(here: Running) -> set[str]:
    found = await here.value("INFO FOR STORE")
    return {each["name"] for each in found["namespaces"]} - {"shop"}


async def marks(here: Running) -> int:
    with here.node.committer.begin_transaction() as tx:
        return len(restores.marks(tx))


def restored(file: Path, directory: Path, reading: bool) -> list[str]:
    environment = system_environment()
    with closing(environment.fs.open_read(str(file))) as snapshot:
        return list(
            restore(
                environment, snapshot, RestoreOptions(str(directory), reading=reading), no_progress
            )
        )


@asynccontextmanager
async def reading(directory: Path) -> AsyncIterator[Running]:
    """A node on a store that nothing is declared in first."""
    node = await start(NodeSettings(str(directory), password_cost=CHEAP), system_environment())
    try:
        yield Running(node)
    finally:
        await node.stop()


async def test_it_is_dropped_at_the_first_start(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    await half_done(folder, tmp_path / "store")
    said = restored(folder / "x", tmp_path / "new", reading=False)
    assert "    half.done: dropped, since the script that was filling it did not finish" in said
    async with running(tmp_path / "new") as here:
        assert (await places(here), await marks(here)) == ({"mine"}, 0)


async def test_one_that_only_reads_keeps_it_until_it_is_told_to_write(
    tmp_path: Path, logbook: Logbook
) -> None:
    logbook.allow("could not drop the places of an unfinished restore")
    folder = tmp_path / "folder"
    folder.mkdir()
    await half_done(folder, tmp_path / "store")
    said = restored(folder / "x", tmp_path / "new", reading=True)
    assert any(line.startswith("once it is writable") for line in said)
    async with reading(tmp_path / "new") as here:
        assert (await places(here), await marks(here)) == ({"mine", "half"}, 2)
        refusal = (await here.answer("DEFINE NAMESPACE more")).refusal
        assert isinstance(refusal, NotWritable)
        await here.value("DEFINE NODE ROLES serving")
        assert await marks(here) == 2
        await here.value("DEFINE NODE ROLES serving, writable")
        assert (await places(here), await marks(here)) == ({"mine"}, 0)
        await here.values("DEFINE NAMESPACE half; DEFINE DATABASE half.done")


@pytest.mark.parametrize(
    "why",
    [
        NotEnoughReplicas("too few would have it", followers=0, acks=1),
        Conflict("somebody's barrier stands"),
    ],
)
async def test_what_can_not_be_dropped_for_a_moment_is_dropped_behind_it(
    why: Refusal, tmp_path: Path, logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    logbook.allow("could not drop the places of an unfinished restore")
    monkeypatch.setattr("actors.restores.AGAIN_US", 1_000)
    folder = tmp_path / "folder"
    folder.mkdir()
    await half_done(folder, tmp_path / "store")
    restored(folder / "x", tmp_path / "new", reading=True)
    async with reading(tmp_path / "new") as here:
        committer, tries = here.node.committer, list[None]()
        check = committer.check_replicated

        def refuse() -> None:
            tries.append(None)
            raise why.also()

        await here.value("DEFINE NODE ROLES serving")
        committer.check_replicated = refuse
        committer._check_declared = lambda: None
        await here.node._timers.leads(True)
        while len(tries) < 5:
            await asyncio.sleep(0.001)
        assert await marks(here) == 2
        committer.check_replicated = check
        while await marks(here):
            await asyncio.sleep(0.001)
        assert await places(here) == {"mine"}


async def test_a_restore_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    """What somebody fills while the roles change is theirs to drop."""
    async with running(tmp_path / "store") as here:
        committer = here.node.committer
        with committer.begin_transaction() as tx:
            restores.mark(tx, catalog_places.define_namespace(tx, "filled"))
            committer.commit(tx, NODE)
        await here.value("DEFINE NODE ROLES serving")
        await here.value("DEFINE NODE ROLES serving, writable")
        assert "filled" in await places(here)


async def test_vaults_of_others_go_with_entries_in_both_trails(tmp_path: Path) -> None:
    """As behind DROP DATABASE: what somebody had sealed is gone, and it is known how."""
    async with running(tmp_path / "store") as here:
        await here.unseal()
        committer = here.node.committer
        with committer.begin_transaction() as tx:
            database = catalog_places.define_database(
                tx, catalog_places.namespace(tx, "shop"), "half"
            )
            restores.mark(tx, database)
            await committer.released(committer.commit(tx, NODE))
        await here.values("USE shop.half; DEFINE VAULT v; WRITE 'k' IN VAULT v VALUE 1")
        held = here.node._timers._vaults._keyring._open[STORE].keys
        assert held
        await here.node._timers.leads(True)
        assert not await marks(here)
        assert not held, "nor does anybody hold its keys"
        drop = (await here.value("INFO FOR AUDIT OF ALL VAULTS"))[0]
        assert drop["action"] == "drop shop.half.v"
        assert drop["reason"] == "a script was not restored to its end"
        with committer.begin_transaction() as tx:
            assert trail.head(tx, drop["version"]).number == 3, "defined, written, dropped"


async def test_users_of_others_go_with_what_was_let_in_as_them(tmp_path: Path) -> None:
    """As behind DROP DATABASE: nobody who is declared later under such a name has their session."""
    async with running(tmp_path / "store") as here:
        committer = here.node.committer
        with committer.begin_transaction() as tx:
            database = catalog_places.define_database(
                tx, catalog_places.namespace(tx, "shop"), "half"
            )
            restores.mark(tx, database)
            await committer.released(committer.commit(tx, NODE))
        password = "a password of its own"
        await here.values(
            f"DEFINE USER guest ROLE owner ON DATABASE shop.half PASSWORD '{password}'"
        )
        session = await ask(
            here.node.sessions, SignIn("guest", password, "http", "127.0.0.1:50002")
        )
        assert (await here.answer("RETURN 1", caller=session.caller)).refusal is None
        await here.node._timers.leads(True)
        assert not await marks(here)
        answer = await here.answer("RETURN 1", caller=session.caller)
        assert isinstance(answer.refusal, SessionEnded)


async def test_what_can_not_be_read_is_dropped_later(
    tmp_path: Path, logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    logbook.allow("handler failed|a part of the state can't be read")
    monkeypatch.setattr("actors.restores.REST_US", 1_000)
    undo, tries = restores.undo, list[None]()

    def unreadable(*of: Any) -> Any:
        tries.append(None)
        if len(tries) < 4:
            raise EngineUnreadable("bad block")
        return undo(*of)

    monkeypatch.setattr(restores, "undo", unreadable)
    async with running(tmp_path / "store") as here:
        committer = here.node.committer
        with committer.begin_transaction() as tx:
            restores.mark(tx, catalog_places.define_namespace(tx, "half"))
            await committer.released(committer.commit(tx, NODE))
        await here.node._timers.leads(True)
        while await marks(here):
            await asyncio.sleep(0.001)
        assert len(tries) == 4 and await places(here) == set()
