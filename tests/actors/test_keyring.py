"""The plain keys: how long they are there, and that nothing of them is left."""

from __future__ import annotations

import pytest

from actors.vaults.keyring import STORE, Keyring
from protocol.errors import Sealed, WrongKey
from storage.catalog.places import Database, Namespace
from storage.vaults.cipher import wrap_key
from storage.vaults.rows import KeysRow
from storage.vaults.vaults import Vault
from tests.simulation.environment import ManualClock

DOMAIN = b"d" * 16
PLACE = Database(2, Namespace(1, "a"), "b")
HUNG, OWN = Vault(3, PLACE, "v"), Vault(4, PLACE, "o", own=True)
MINUTE_US = 60_000_000


def opened(clock: ManualClock, of: int = STORE) -> tuple[Keyring, bytearray]:
    ring, root = Keyring(clock), bytearray(range(32))
    ring.open(of, DOMAIN, root, clock.monotonic_us() + MINUTE_US)
    return ring, root


def row(vault: Vault, root: bytes = bytes(range(32)), key: bytes = b"k" * 32) -> KeysRow:
    sealed = wrap_key(
        bytearray(root), bytearray(key), DOMAIN, vault.id, 1, lambda count: b"n" * count
    )
    return KeysRow(1, {1: sealed})


def test_keys_end_with_their_time() -> None:
    clock = ManualClock()
    ring, root = opened(clock)
    key = ring.key(HUNG, row(HUNG), 1)
    assert bytes(key.secret) == b"k" * 32
    assert ring.key(HUNG, row(HUNG), 1) is key
    clock.advance(MINUTE_US - 1)
    assert ring.until_us(STORE) is not None
    clock.advance(1)
    assert ring.until_us(STORE) is None
    for plain in (root, key.secret):
        assert bytes(plain) == bytes(32)  # overwritten
    with pytest.raises(Sealed):
        ring.key(HUNG, row(HUNG), 1)
    assert ring.root(STORE) is None and ring.store_trail() is None


def test_each_is_opened_by_its_own_root() -> None:
    ring, _ = opened(ManualClock())
    with pytest.raises(Sealed, match=r"vault a\.b\.o"):
        ring.key(OWN, row(OWN), 1)
    with pytest.raises(WrongKey):
        ring.key(HUNG, row(HUNG, b"x" * 32), 1)
    with pytest.raises(WrongKey, match="no longer has version 2"):
        ring.key(HUNG, row(HUNG), 2)


def test_a_wrap_that_changes_is_another_key() -> None:
    ring, _ = opened(ManualClock())
    before = ring.key(HUNG, row(HUNG), 1)
    after = ring.key(HUNG, row(HUNG, key=b"l" * 32), 1)
    assert before is not after and bytes(after.secret) == b"l" * 32


@pytest.mark.parametrize("stays", [True, False])
def test_two_roots_until_it_is_known_which_stays(stays: bool) -> None:
    ring, _ = opened(ManualClock())
    other = bytes(range(1, 33))
    ring.replace_root(STORE, bytearray(other))
    for root in (bytes(range(32)), other):
        assert ring.key(HUNG, row(HUNG, root), 1).wrap
    ring.confirm_root(STORE, bytearray(other), stays=stays)
    ring.confirm_root(STORE, bytearray(other), stays=stays)  # once is enough
    kept, gone = (other, bytes(range(32))) if stays else (bytes(range(32)), other)
    assert ring.key(HUNG, row(HUNG, kept, b"m" * 32), 1).wrap
    with pytest.raises(WrongKey):
        ring.key(HUNG, row(HUNG, gone, b"n" * 32), 1)


@pytest.mark.parametrize("second_stays", [True, False])
def test_another_root_before_the_first_is_known_to_stay(second_stays: bool) -> None:
    ring, _ = opened(ManualClock())
    first, second = bytes(range(1, 33)), bytes(range(2, 34))
    ring.replace_root(STORE, bytearray(first))
    ring.replace_root(STORE, bytearray(second))
    ring.confirm_root(STORE, bytearray(first), stays=True)
    ring.confirm_root(STORE, bytearray(second), stays=second_stays)
    kept, gone = (second, first) if second_stays else (first, second)
    assert ring.key(HUNG, row(HUNG, kept), 1).wrap
    assert bytes(ring.root(STORE) or b"") == kept
    for root in (gone, bytes(range(32))):
        with pytest.raises(WrongKey):
            ring.key(HUNG, row(HUNG, root, b"n" * 32), 1)


def test_what_is_dropped_is_forgotten() -> None:
    ring, _ = opened(ManualClock())
    key = ring.key(HUNG, row(HUNG), 1)
    ring.forget_all(HUNG)
    assert bytes(key.secret) == bytes(32)
    ring, root = opened(ManualClock(), OWN.id)
    ring.forget_all(OWN)
    assert bytes(root) == bytes(32)
    assert not ring.seal(OWN.id)
    assert "secret" not in repr(vars(ring)) and "k" * 32 not in repr(vars(ring))
