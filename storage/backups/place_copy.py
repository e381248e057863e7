"""Snapshot of one place (namespace or database): its own keys, and the reduced form of all others.

The snapshot of a place is a complete store. It has

- all contents of the place, and the catalog around it;
- the store's users, with their grants, which name places by their numbers;
- of every other place its declarations, with the counters of ids and of positions, so that no
  number is assigned twice;
- none of the contents of other places. Counts are zero, each topic ends where it would if all its
  messages had been trimmed, and readers and groups are at that end;
- of vaults elsewhere the declarations, and neither keys nor values. The store's root key, wrapped,
  is included only if a vault of the place depends on it. The trails of the place's vaults are
  included;
- no entry of the statement log or the audit trail, which belong to the store, and no row of the
  cluster: the restored store belongs to none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from struct import Struct
from typing import Final

from protocol import binary
from protocol.errors import Unknown
from protocol.values import Tick, paced
from storage.engine.engine import EngineReader
from storage.formats import keys
from storage.formats.container import BackupScope
from storage.formats.keys import Pair
from storage.topics import groups
from storage.txn.appends import unpack_counter
from storage.vaults import rows as vault_rows

_ID: Final = Struct(">I")
_ZERO: Final = keys.pack_counter(0)


def share(view: EngineReader, some: Sequence[BackupScope], tick: Tick) -> float:
    """Estimate the part of the store (0 … 1) that some places hold.

    It compares the numbers of records, cache keys and messages.

    :param tick: called for each table, space and topic of the store
    :raises Unknown: the store has no such place
    """
    # Keys of data begin with tag and ids, so a prefix behind the tag decides the owner of a key.
    owns = tuple(_numbers(view, place) for place in some)
    mine = everything = 0
    for tag in (keys.COUNT, keys.ENTRY_COUNT, keys.TOPIC_LAST):
        for found in view.scan(*keys.tagged(tag)):
            for key, value in paced(found, tick, 1):
                held = (
                    _messages(view, key) if tag == keys.TOPIC_LAST else keys.unpack_counter(value)
                )
                everything += held
                if key.startswith(owns, keys.TAG_AT + 1):
                    mine += held
    return mine / everything if everything else 1.0


def _messages(view: EngineReader, key: bytes) -> int:
    """Return the number of messages in a topic, given the key of its last position."""
    trimmed = view.get(keys.with_tag(keys.TOPIC_TRIMMED, key))
    return unpack_counter(view.get(key))[0] - unpack_counter(trimmed)[0]


def pairs(view: EngineReader, place: BackupScope) -> Iterator[list[Pair]]:
    """Yield the pairs of a place's snapshot in key order. Lists may be empty.

    :raises Unknown: the store has no such place; raised at the first step
    :raises EngineFailed: reading the view fails
    """
    own = _numbers(view, place)
    # First the vaults: the store-wide row depends on them, and precedes them in key order.
    vaults: dict[int, bool] = {}
    for some in view.scan(*keys.within(keys.tagged(keys.VAULT)[0] + own)):
        vaults |= _vaults(some)
        yield []
    start, _ = keys.EVERYTHING
    yield from view.scan(start, keys.tagged(keys.VAULT_STORE)[0])
    yield _reduced_vault_row(view, vaults)
    # The catalog of the whole store, without the rows of the cluster before it and at its end.
    yield from view.scan(keys.tagged(keys.FAILOVER)[1], keys.tagged(keys.RECALL)[0])
    yield from view.scan(keys.tagged(keys.RECALL)[1], keys.tagged(keys.REPLICA)[0])
    # Ascending tags: a reader refuses pairs that are out of key order.
    for tag in sorted(tag for tag in keys.PLACED if tag >= keys.COUNT):
        # Derived from the records by the restore.
        if tag == keys.INDEX_ENTRY:
            continue
        remains = _REMAINS.get(tag)
        # A topic that was never trimmed has no such row, but needs one in its reduced form.
        if tag == keys.TOPIC_TRIMMED:
            yield from _trimmed(view, own)
        elif remains is None:
            yield from view.scan(*keys.within(keys.tagged(tag)[0] + own))
        else:
            yield from _with_others(view, tag, own, remains)
    # Trails are keyed by vault alone, so no prefix of the place finds them.
    for tag in keys.OF_TRAILS:
        for vault in sorted(vaults):
            yield from view.scan(*keys.within(keys.tagged(tag)[0] + _ID.pack(vault)))


def _vaults(rows: list[Pair]) -> dict[int, bool]:
    """Return the ids of some declared vaults. True for one with a passphrase of its own."""
    found = {}
    for _, value in rows:
        row = binary.unpack_object(value)
        found[int(row["id"])] = bool(row["own"])
    return found


def _reduced_vault_row(view: EngineReader, vaults: dict[int, bool]) -> list[Pair]:
    """Return the store-wide vault row as the place's vaults need it.

    Empty without vaults. The root key is omitted if every vault has a passphrase of its own.
    """
    row = view.get(vault_rows.STORE_KEY)
    if row is None or not vaults:
        return []
    # No key of the place is under the root key; in the file it would only help to guess.
    if all(vaults.values()):
        row = replace(vault_rows.read_store(row), root=None).pack()
    return [(vault_rows.STORE_KEY, row)]


def _numbers(view: EngineReader, place: BackupScope) -> bytes:
    """Return the place's ids as they follow the tag in its keys.

    :raises Unknown: the store has no such place
    """
    found = view.get(keys.namespace(place.namespace))
    if found is None:
        raise Unknown(f"there is no namespace {place.namespace}", kind="namespace")
    namespace = int(binary.unpack_object(found)["id"])
    if place.database is None:
        return _ID.pack(namespace)
    found = view.get(keys.database(namespace, place.database))
    if found is None:
        raise Unknown(f"there is no database {place}", kind="database")
    return _ID.pack(namespace) + _ID.pack(int(binary.unpack_object(found)["id"]))


def _is_own(key: bytes, own: bytes) -> bool:
    return key.startswith(own, keys.TAG_AT + 1)


_Remains = Callable[[EngineReader, bytes, bytes], bytes]
"""Function of view, key and value that returns the reduced value of a key of another place."""


def _with_others(
    view: EngineReader, tag: int, own: bytes, remains: _Remains
) -> Iterator[list[Pair]]:
    for found in view.scan(*keys.tagged(tag)):
        yield [
            (key, value if _is_own(key, own) else remains(view, key, value)) for key, value in found
        ]


def _trimmed(view: EngineReader, own: bytes) -> Iterator[list[Pair]]:
    """Yield the trim positions. Topics of other places count as trimmed to their last message."""
    for found in view.scan(*keys.tagged(keys.TOPIC_LAST)):
        kept: list[Pair] = []
        for key, last in found:
            at = keys.with_tag(keys.TOPIC_TRIMMED, key)
            value = view.get(at) if _is_own(key, own) else last
            if value is not None:
                kept.append((at, value))
        yield kept


def _as_it_is(view: EngineReader, key: bytes, value: bytes) -> bytes:
    return value


def _zero(view: EngineReader, key: bytes, value: bytes) -> bytes:
    return _ZERO


def _last(view: EngineReader, key: bytes) -> int:
    """Return the last position of the topic that the key belongs to."""
    topic = keys.with_tag(keys.TOPIC_LAST, key)[: keys.RECORD_PREFIX_BYTES]
    return unpack_counter(view.get(topic))[0]


def _at_end(view: EngineReader, key: bytes, value: bytes) -> bytes:
    return keys.pack_counter(_last(view, key))


def _done(view: EngineReader, key: bytes, value: bytes) -> bytes:
    last = _last(view, key)
    before = groups.GroupState.unpack(value)
    empty = replace(
        before, cursor=last, handed_out=last, committed=last, hand_outs=0, out=0, parked=0
    )
    return empty.pack()


_REMAINS: Final[dict[int, _Remains]] = {
    keys.COUNT: _zero,
    keys.ENTRY_COUNT: _zero,
    keys.TOPIC_LAST: _as_it_is,
    keys.READER: _at_end,
    keys.GROUP_STATE: _done,
    keys.GROUP_IDS: _as_it_is,
    keys.DECLARED: _as_it_is,
}
"""Reduction of other places' values, by tag. Keys with other tags are left out."""
