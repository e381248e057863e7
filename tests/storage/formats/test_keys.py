"""The page of keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import TooLarge
from storage.engine.engine import APPLIED_KEY
from storage.formats import keys

numbers = st.integers(0, 2**32 - 1)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", fullmatch=True)


SPACE_TAGS = {
    "entries": keys.ENTRY_COUNT,
    "entry": keys.ENTRY,
    "content": keys.CONTENT,
    "expiry": keys.EXPIRY,
}
TOPIC_TAGS = {tag.to_bytes().hex(): tag for tag in keys.OF_TOPICS}
PLACED = {
    "table", "field", "count", "record", "space", "topic", "function", *SPACE_TAGS, *TOPIC_TAGS,
}  # fmt: skip


def every_kind(namespace: int, database: int, table: int, name: str) -> dict[str, bytes]:
    prefix = keys.record_prefix(namespace, database, table)
    return {
        "allocator": keys.NAMESPACE_IDS,
        "namespace": keys.namespace(name),
        "database": keys.database(namespace, name),
        "table": keys.table(namespace, database, name),
        "field": keys.field(namespace, database, table, name),
        "user": keys.user(name),
        "function": keys.function(namespace, database, name),
        "count": keys.count(namespace, database, table),
        "record": keys.record(prefix, name),
        "space": keys.space(namespace, database, name),
        **{
            kind: keys.in_space(tag, namespace, database, table) + name.encode()
            for kind, tag in SPACE_TAGS.items()
        },
        "topic": keys.topic(namespace, database, name),
        **{
            kind: keys.of_topic(tag, namespace, database, table) + name.encode()
            for kind, tag in TOPIC_TAGS.items()
        },
    }


@given(namespace=numbers, database=numbers, table=numbers, name=names)
def test_kinds_stay_apart(namespace: int, database: int, table: int, name: str) -> None:
    made = every_kind(namespace, database, table, name)
    assert len(set(made.values())) == len(made)
    low, high = keys.EVERYTHING
    for kind, key in made.items():
        assert low <= key < high
        assert keys.is_record(key) == (kind == "record")
        assert keys.is_stamped(key) == (kind in ("record", "entry"))
        group = keys.GROUP.to_bytes().hex()
        declared = (
            "namespace", "database", "table", "field", "space", "user", "topic", "function", group,
        )  # fmt: skip
        assert keys.is_catalog(key) == (kind in declared)
    assert not low <= APPLIED_KEY < high


@given(namespace=numbers, database=numbers, table=numbers, name=names, other=numbers)
def test_a_place_holds_its_own_and_nothing_else(
    namespace: int, database: int, table: int, name: str, other: int
) -> None:
    def inside(ranges: list[keys.Range], key: bytes) -> bool:
        return any(start <= key < end for start, end in ranges)

    made = every_kind(namespace, database, table, name)
    in_namespace = {k for k, key in made.items() if inside(keys.in_namespace(namespace), key)}
    assert in_namespace == {"database", *PLACED}
    in_database = {
        k for k, key in made.items() if inside(keys.in_database(namespace, database), key)
    }
    assert in_database == PLACED
    if other != namespace:
        assert not any(inside(keys.in_namespace(other), key) for key in made.values())
    if other != database:
        assert not any(inside(keys.in_database(namespace, other), key) for key in made.values())


@given(id=st.text(st.characters(codec="utf-8"), max_size=20) | st.integers(-(2**63), 2**63 - 1))
def test_record_ids_come_back(id: str | int) -> None:
    assert keys.record_id(keys.record(keys.record_prefix(1, 2, 3), id)) == id


def test_long_ids_are_refused() -> None:
    prefix = keys.record_prefix(1, 2, 3)
    assert len(keys.record(prefix, "x" * 253)) == len(prefix) + 256
    with pytest.raises(TooLarge):
        keys.record(prefix, "x" * 254)


def test_touches_catalog() -> None:
    assert keys.touches_catalog(*keys.namespaces())
    assert keys.touches_catalog(*keys.tables(1, 1))
    assert keys.touches_catalog(*keys.EVERYTHING)
    assert not keys.touches_catalog(*keys.within(keys.record_prefix(1, 1, 1)))
    assert not keys.touches_catalog(keys.NAMESPACE_IDS, keys.TABLE_IDS)


@given(time_us=st.integers(0, 2**63), key=names)
def test_the_expiry_index_sorts_by_time(time_us: int, key: str) -> None:
    prefix = keys.in_space(keys.EXPIRY, 1, 2, 3)
    made = keys.expiry(prefix, time_us, key.encode())
    assert keys.expiry_time(made) == time_us
    assert made[keys.EXPIRY_KEY_AT :] == key.encode()
    assert prefix <= made < keys.expiry(prefix, time_us + 1)
