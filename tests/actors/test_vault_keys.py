"""Keys of vaults: changed, made anew, rotated; what opens with them and what does not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from actors.execution.late_answers import end_waits
from actors.node import Node
from actors.runtime import ask
from actors.vaults import rekeying, rotation
from actors.vaults.keyring import STORE
from protocol import limits
from protocol.errors import (
    BadRequest,
    Busy,
    NotEnoughReplicas,
    NotWritable,
    Sealed,
    UnknownOutcome,
    WrongKey,
)
from protocol.vaults import ChangePassphrase, Seal, ShowVaults
from storage.formats import keys
from storage.vaults import rows as vault_rows
from storage.vaults import trail as vault_trail
from storage.vaults import vaults
from storage.vaults.cipher import stretched, unwrap_key, unwrap_root
from tests.actors.nodes import ANA, value
from tests.actors.parts import on_stepped, outcome
from tests.actors.scripts.test_taken_back import stalled
from tests.actors.vaulted import (
    CANARY,
    NAMES,
    OTHER,
    PASSPHRASE,
    Machine,
    called,
    define_users,
    log_is_full,
    node_with_vault,
    refusal,
    reveal,
    rotated,
    set_up,
    trail,
    unseal,
    vault_of,
    with_vault,
    write,
)
from tests.logbook import Logbook


@with_vault
async def test_passphrases_are_changed(node: Node, /) -> None:
    await write(node, "k", CANARY)
    with pytest.raises(WrongKey):
        await ask(node.vaults, ChangePassphrase(ANA, None, OTHER, OTHER))
    with pytest.raises(BadRequest):
        await ask(node.vaults, ChangePassphrase(ANA, None, None, OTHER))
    with pytest.raises(BadRequest):
        await ask(node.vaults, ChangePassphrase(ANA, None, PASSPHRASE, "short"))
    assert await ask(node.vaults, ChangePassphrase(ANA, None, PASSPHRASE, OTHER)) == 1
    assert (await reveal(node, "k"))["value"] == CANARY  # it stays unsealed
    await ask(node.vaults, Seal(ANA, None))
    with pytest.raises(WrongKey):
        await unseal(node, PASSPHRASE)
    await unseal(node, OTHER)
    assert (await reveal(node, "k"))["value"] == CANARY
    assert (await value(node, "INFO FOR VAULT v"))["key_version"] == 1


@pytest.mark.parametrize("is_open", [False, True])
@with_vault
async def test_all_keys_are_made_anew(node: Node, /, is_open: bool) -> None:
    for number in range(150):
        await write(node, f"k{number}", number)
    vault = vault_of(node)
    with node.committer.begin_transaction() as tx:
        before = vaults.keys_row(tx, vault)
        store = vaults.store_row(tx)
    if not is_open:
        await ask(node.vaults, Seal(ANA, None))
    asked = ChangePassphrase(ANA, None, PASSPHRASE, OTHER, rekey=True)
    assert await ask(node.vaults, asked) == 2
    if not is_open:
        assert (await value(node, "INFO FOR VAULT v"))["rotation"] == "waiting (sealed)"
        await unseal(node, OTHER)
    await rotated(node)
    with node.committer.begin_transaction() as tx:
        after = vaults.keys_row(tx, vault)
        renewed = vaults.store_row(tx)
        assert after.current == 2 and set(after.wraps) == {2}
        assert vaults.values_to_reseal(tx, vault, 1, 1) == []
    assert store is not None and renewed is not None
    assert (store.generation, renewed.generation) == (1, 2)
    assert before.wraps[1] not in after.wraps.values()
    for number in range(150):
        assert (await reveal(node, f"k{number}"))["value"] == number
    assert all(one["intact"] for one in await trail(node))
    assert all(one["intact"] for one in await trail(node, "ALL VAULTS"))


@pytest.mark.parametrize("beside", ["nothing", "other keys", "refusals"])
@with_vault
async def test_the_keys_of_many_vaults_are_made_in_slices(node: Node, /, beside: str) -> None:
    """And are one commit all the same, whatever changes meanwhile."""
    count = 6 * rekeying.AT_ONCE
    names = [f"m{number}" for number in range(count)]
    for name in names:
        await value(node, f"DEFINE VAULT {name}; WRITE 'k' IN VAULT {name} VALUE '{name}'")
    turns, over = 0, False

    async def others() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    async def change() -> None:
        number = 0
        while not over:
            number += 1
            if beside == "other keys":
                await value(node, f"ROTATE VAULT m{number % count}")
            elif beside == "refusals":
                await outcome(unseal(node, "wrong passphrase", caller=called("mo")))
            await asyncio.sleep(0)

    await define_users(node)
    going = [asyncio.ensure_future(others()), asyncio.ensure_future(change())]
    made = rekeying.Rekeying._renewed
    least: list[int] = []

    def seen(*parts: Any) -> bool:
        least.append(turns)
        return made(*parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rekeying.Rekeying, "_renewed", seen)
        asked = ChangePassphrase(ANA, None, PASSPHRASE, OTHER, rekey=True)
        # Vault v has had no need of a key.
        assert await ask(node.vaults, asked) == count + 1
    over = True
    await asyncio.gather(*going)
    if beside == "nothing":
        assert max(Counter(least).values()) <= rekeying.AT_ONCE
        assert len(least) == count + 1
    else:
        assert count + 1 <= len(least) <= rekeying.ATTEMPTS * (count + 2)
        assert beside != "other keys" or len(least) > count + 1  # it was made again
    await ask(node.vaults, Seal(ANA, None))
    with pytest.raises(WrongKey):
        await unseal(node, PASSPHRASE)
    await unseal(node, OTHER)
    for name in names:
        found = await value(node, f"REVEAL 'k' FROM VAULT {name}")
        assert found["value"] == name
    assert all(one["intact"] for one in await trail(node, "ALL VAULTS"))


@with_vault
async def test_rotation_beside_writes(node: Node, /) -> None:
    for number in range(200):
        await write(node, f"k{number}", 0)
    written = {f"k{number}": 0 for number in range(200)}

    async def writer(first: int) -> None:
        for number in range(first, 200, 4):
            await write(node, f"k{number}", number)
            written[f"k{number}"] = number

    async def rotator() -> None:
        for _ in range(3):
            await value(node, "ROTATE VAULT v")
            await asyncio.sleep(0)

    await asyncio.gather(*map(writer, range(4)), rotator())
    await rotated(node)
    for id, number in written.items():
        assert (await reveal(node, id))["value"] == number
    found = await value(node, "INFO FOR VAULT v")
    assert found["key_version"] == 4 and found["records"] == 200


@with_vault
async def test_what_a_change_of_keys_gives(node: Node, /) -> None:
    """Line by line of the table in docs/vaults.md: what somebody has who kept an old copy of the
    state and learns the old passphrase."""
    await write(node, "k", CANARY)
    vault = vault_of(node)
    with node.committer.begin_transaction() as tx:
        old = vaults.store_row(tx)
    assert old is not None and old.root is not None
    wrapping = stretched(PASSPHRASE, old.root.salt, old.root.stretch)
    stolen = unwrap_root(wrapping, old.root, old.domain, 0)

    def opens_today() -> bool:
        with node.committer.begin_transaction() as tx:
            row = vaults.keys_row(tx, vault)
        wrap = row.wraps[row.current]
        try:
            unwrap_key(stolen, wrap, old.domain, vault.id, row.current)
        except WrongKey:
            return False
        return True

    await ask(node.vaults, ChangePassphrase(ANA, None, PASSPHRASE, OTHER))
    assert opens_today()  # another passphrase alone takes nothing from them
    await value(node, "ROTATE VAULT v")
    await rotated(node)
    assert opens_today()  # nor does a rotation
    asked = ChangePassphrase(ANA, None, OTHER, PASSPHRASE, rekey=True)
    await ask(node.vaults, asked)
    await rotated(node)
    assert not opens_today()
    assert (await value(node, "INFO FOR VAULT v"))["in_log_until"] is not None
    await value(node, "ERASE 'k' FROM VAULT v")
    erased = await value(node, "INFO FOR VAULT v")
    assert erased["in_log_until"] == node.committer.commit_index
    with node.committer.begin_transaction() as tx:
        for tag in (keys.VAULT_VALUE, keys.VAULT_USE, keys.VAULT_RECORD):
            assert not list(tx.scan(*keys.tagged(tag)))


@with_vault
async def test_a_value_that_does_not_open_keeps_its_key(node: Node, /, logbook: Logbook) -> None:
    logbook.allow("a value can't be decrypted, so its key is kept")
    await value(node, "DEFINE VAULT w; WRITE 'k' IN VAULT w VALUE 1")
    for id in ("a", "b", "c"):
        await write(node, id, id)
    at = vault_rows.value(vault_of(node).numbers, b"b", 1)
    with node.committer.begin_transaction() as tx:
        row = tx.get(at)
        assert row is not None
        tx.put(at, row[:-1] + bytes((row[-1] ^ 1,)))
        ticket = node.committer.commit(tx, ANA)
    await node.committer.released(ticket)
    await value(node, "ROTATE VAULT v; ROTATE VAULT w")
    await asyncio.sleep(5)
    assert (await value(node, "INFO FOR VAULT w"))["rotation"] == "none"
    assert (await value(node, "REVEAL 'k' FROM VAULT w"))["value"] == 1
    with node.committer.begin_transaction() as tx:
        assert set(vaults.keys_row(tx, vault_of(node)).wraps) == {1, 2}
    for id in ("a", "c"):
        assert (await reveal(node, id))["value"] == id
    assert isinstance(await refusal(node, "REVEAL 'b' FROM VAULT v"), WrongKey)
    outcomes = [(one["action"], one["outcome"]) for one in await trail(node)]
    assert ("rotate", "WrongKey") in outcomes
    await value(node, "ERASE 'b' FROM VAULT v; ROTATE VAULT v")
    await rotated(node)
    assert (await reveal(node, "c"))["value"] == "c"


@on_stepped
async def test_a_key_that_has_sealed_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VAULT_KEY_SEALS", 3)
    monkeypatch.setattr(rotation, "AT_ONCE", 1)
    async with node_with_vault() as node:
        for number in range(8):
            await write(node, f"k{number}", number)
            await asyncio.sleep(1)
        await rotated(node)
        found = await value(node, "INFO FOR VAULT v")
        assert found["key_version"] > 2
        for number in range(8):
            assert (await reveal(node, f"k{number}"))["value"] == number


async def all_rotated(node: Node, *names: str) -> None:
    async with asyncio.timeout(600):
        for name in names:
            while (await value(node, f"INFO FOR VAULT {name}"))["rotation"] != "none":
                await asyncio.sleep(0.1)


@on_stepped
async def test_a_rotation_that_was_refused_goes_on_whoever_has_asked_for_more_meanwhile(
    monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("disk")
    monkeypatch.setattr(rotation, "AT_ONCE", 1)
    machine = Machine()
    async with machine.node() as node:
        await set_up(node)
        await unseal(node)
        await value(node, "DEFINE VAULT w; WRITE 'k' IN VAULT w VALUE 1")
        for number in range(100):
            await write(node, f"k{number}", number)
        await value(node, "ROTATE VAULT v")
        await value(node, "ROTATE VAULT w")
        assert (await value(node, "INFO FOR VAULT v"))["rotation"] != "none", "it is under way"
        machine.disk.plan = log_is_full
        while "values could not be sealed with the new key yet" not in logbook.names():
            await asyncio.sleep(0.1)
        machine.disk.plan = None
        await all_rotated(node, "v", "w")


@on_stepped
async def test_nothing_unsealed_survives_a_restart_and_rotation_goes_on() -> None:
    machine = Machine()
    async with machine.node() as node:
        await set_up(node)
        await unseal(node)
        for number in range(100):
            await write(node, f"k{number}", number)
        await value(node, "ROTATE VAULT v")
        await ask(node.vaults, Seal(ANA, None))
    async with machine.node() as node:
        found = await value(node, "INFO FOR VAULT v")
        assert found["sealed"]
        assert found["rotation"] == "waiting (sealed)"
        await unseal(node)
        await rotated(node)
        for number in range(100):
            assert (await reveal(node, f"k{number}"))["value"] == number
        assert len(await trail(node)) > 100


@with_vault
async def test_a_vault_with_a_passphrase_of_its_own(node: Node, /) -> None:
    await value(node, "DEFINE VAULT o PASSPHRASE $p", {"p": OTHER})
    names = ("a", "b", "o")
    assert isinstance(await refusal(node, "WRITE 'k' IN VAULT o VALUE 1"), Sealed)
    with pytest.raises(WrongKey):
        await unseal(node, PASSPHRASE, names)
    await unseal(node, OTHER, names)
    await value(node, "WRITE 'k' IN VAULT o VALUE 1")
    await ask(node.vaults, Seal(ANA, None))  # the store's seal is none of its
    assert (await value(node, "REVEAL 'k' FROM VAULT o"))["value"] == 1
    asked = ChangePassphrase(ANA, names, OTHER, PASSPHRASE, rekey=True)
    assert await ask(node.vaults, asked) == 2
    assert (await value(node, "REVEAL 'k' FROM VAULT o"))["value"] == 1
    await ask(node.vaults, Seal(ANA, names))
    assert isinstance(await refusal(node, "REVEAL 'k' FROM VAULT o"), Sealed)
    await unseal(node, PASSPHRASE, names)
    assert (await value(node, "REVEAL 'k' FROM VAULT o"))["value"] == 1
    with pytest.raises(BadRequest, match="no passphrase of its own"):
        await unseal(node, PASSPHRASE, NAMES)
    shown = await ask(node.vaults, ShowVaults(ANA))
    assert shown.is_set and shown.seal.sealed
    found = [(one.names[2], one.own, one.seal.sealed, one.records) for one in shown.vaults]
    assert found == [("o", True, False, 1), ("v", False, True, 0)]
    with pytest.raises(BadRequest):
        await value(node, "DEFINE VAULT p PASSPHRASE 'short'")


@with_vault
async def test_no_value_opens_in_the_place_of_another(
    node: Node, /, figure: Callable[[str, object], None]
) -> None:
    """Each value row in the place of each other one: of another version, record, vault."""
    await value(node, "DEFINE VAULT w VERSIONS 2")
    rows: dict[tuple[str, str, int], tuple[bytes, bytes]] = {}
    for name in ("v", "w"):
        vault = vault_of(node, name)
        for id in ("a", "b"):
            for version in (1, 2):
                script = f"WRITE $id IN VAULT {name} VALUE $value"
                told = {"id": id, "value": f"{name} {id} {version}"}
                await value(node, script, told)
                at = vault_rows.value(vault.numbers, id.encode(), version)
                with node.committer.begin_transaction() as tx:
                    row = tx.get(at)
                assert row is not None
                rows[name, id, version] = (at, row)

    async def put(at: bytes, row: bytes) -> None:
        with node.committer.begin_transaction() as tx:
            tx.put(at, row)
            ticket = node.committer.commit(tx, ANA)
        await node.committer.released(ticket)

    tried = 0
    for (name, id, version), (at, own) in rows.items():
        for other, (_, row) in rows.items():
            if other != (name, id, version):
                await put(at, row)
                script = f"REVEAL '{id}' FROM VAULT {name} VERSION {version}"
                assert isinstance(await refusal(node, script), WrongKey), (script, other)
                tried += 1
        for bit in range(0, 8 * len(own), 7):
            garbled = bytearray(own)
            garbled[bit // 8] ^= 1 << bit % 8
            await put(at, bytes(garbled))
            script = f"REVEAL '{id}' FROM VAULT {name} VERSION {version}"
            assert isinstance(await refusal(node, script), WrongKey), (script, bit)
            tried += 1
        await put(at, own)
        found = await value(node, f"REVEAL '{id}' FROM VAULT {name} VERSION {version}")
        assert found["value"] == f"{name} {id} {version}"
    figure("R22 values in other places, flipped bits", f"{tried}, 0 opened")


async def late_rekey(node: Node) -> None:
    """All keys are made anew, and who asked hears that this is not known yet."""
    committer = node.committer
    upto = committer.committed
    rekey = ChangePassphrase(ANA, None, PASSPHRASE, OTHER, rekey=True)
    asked = asyncio.ensure_future(outcome(ask(node.vaults, rekey)))
    while committer.committed == upto:
        await asyncio.sleep(0.1)
    why = NotEnoughReplicas("it is held up", followers=0, acks=1)
    end_waits(committer, committer.committed, committer.monotonic_us(), why)
    assert isinstance(await asked, UnknownOutcome)


def silent_follower(node: Node) -> int:
    """Nothing more is released. Answers up to where all is."""
    upto = node.committer.commit_index
    node.committer.releasable = lambda _durable: upto
    return upto


@on_stepped
async def test_a_change_of_all_keys_that_is_taken_back_late(logbook: Logbook) -> None:
    logbook.allow("the disk is full: old log was dropped")
    machine = Machine()
    async with machine.node() as node:
        await set_up(node)
        await unseal(node)
        await write(node, "k", CANARY)
        before = node._sealed._keyring.root(STORE)
        with stalled(node, machine.disk):
            await late_rekey(node)
            assert len(node._sealed._keyring._open[STORE].roots) == 2
        upto = node.committer.committed
        while node.committer.committed == upto:
            await asyncio.sleep(0.1)
        machine.disk.plan = None
        assert node._sealed._keyring._open[STORE].roots == [before]
        assert (await reveal(node, "k"))["value"] == CANARY


@pytest.mark.parametrize("stays", [True, False])
@with_vault.using(sealed=True)
async def test_a_wrong_passphrase_is_refused_once_the_change_it_rests_on_is_known(
    node: Node, /, stays: bool, logbook: Logbook
) -> None:
    logbook.allow("unreleased frames were cut off")
    committer, upto = node.committer, silent_follower(node)
    change = ChangePassphrase(ANA, None, PASSPHRASE, OTHER)
    asked = [asyncio.ensure_future(outcome(ask(node.vaults, change)))]
    while committer.committed == upto:
        await asyncio.sleep(0.1)
    asked += [
        asyncio.ensure_future(outcome(unseal(node))),
        asyncio.ensure_future(outcome(ask(node.vaults, change))),
    ]
    await asyncio.sleep(30)
    early = [each.done() for each in asked]
    if stays:
        committer.releasable = lambda durable: durable
        committer.release_more()
    else:
        await committer.begin_following(NotWritable("another node leads"))
    found = [type(await each) for each in asked]
    assert not any(early), found
    assert found == ([int, WrongKey, WrongKey] if stays else [UnknownOutcome, Busy, Busy])


@pytest.mark.parametrize("stays", [True, False])
@with_vault
async def test_who_leads_no_more_holds_no_key(node: Node, /, stays: bool, logbook: Logbook) -> None:
    """Another may lead meanwhile and make all keys anew: it is unsealed anew, if it leads again,
    with the passphrase that counts then."""
    logbook.allow("unreleased frames were cut off")
    await write(node, "k", CANARY)
    upto, committer = silent_follower(node), node.committer
    await late_rekey(node)
    unsealing = asyncio.ensure_future(outcome(unseal(node, OTHER)))
    await asyncio.sleep(0.5)
    await committer.begin_following(NotWritable("another node leads"))
    assert not node._sealed._keyring._open
    if not stays:
        await committer.cut(upto)
    committer.releasable = lambda durable: durable
    await committer.released(await committer.begin_leading(9))
    assert isinstance(await unsealing, UnknownOutcome)
    assert isinstance(await refusal(node, "REVEAL 'k' FROM VAULT v"), Sealed)
    await unseal(node, OTHER if stays else PASSPHRASE)
    assert (await reveal(node, "k"))["value"] == CANARY


@with_vault
async def test_an_older_row_put_back_is_noticed(node: Node, /) -> None:
    vault = vault_of(node)
    value_at = vault_rows.value(vault.numbers, b"k", 2)

    def rows() -> dict[bytes, bytes]:
        with node.committer.begin_transaction() as tx:
            prefixes = [vault_rows.of_vault(tag, vault.numbers) for tag in keys.OF_VAULTS]
            return {
                key: row
                for prefix in prefixes
                for pairs in tx.scan(*keys.within(prefix))
                for key, row in pairs
            }

    async def put(changed: Mapping[bytes, bytes | None]) -> None:
        with node.committer.begin_transaction() as tx:
            for key, row in changed.items():
                if row is None:
                    tx.delete(key)
                else:
                    tx.put(key, row)
            ticket = node.committer.commit(tx, ANA)
        await node.committer.released(ticket)

    await write(node, "k", "first")
    await write(node, "k", "second")
    before = rows()
    await write(node, "k", "third")
    after = rows()
    stamped = [key for key in after if key[keys.TAG_AT] == keys.VAULT_REMOVED]
    old = {key: before.get(key) for key in after if key not in stamped}
    await put(old)  # head, values and uses as they were: only the trail knows
    refused = await refusal(node, "REVEAL 'k' FROM VAULT v")
    assert isinstance(refused, WrongKey) and "put back" in refused.message
    await put({key: row for key, row in after.items() if key not in stamped})
    assert (await reveal(node, "k"))["value"] == "third"
    await put({value_at: after[vault_rows.value(vault.numbers, b"k", 3)]})
    assert isinstance(await refusal(node, "REVEAL 'k' FROM VAULT v VERSION 2"), WrongKey)
    outcomes = [one["outcome"] for one in await trail(node)]
    assert outcomes.count("WrongKey") == 2
    with node.committer.begin_transaction() as tx:
        entry = vault_trail._at(vault.id, 3)
        row = tx.get(entry)
    assert row is not None
    await put({entry: row.replace(b"ana", b"eve")})
    assert not all(one["intact"] for one in await trail(node))
