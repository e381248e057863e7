"""Keys: the layout of every key of the state, on one page.

A key is: range (2 bytes, always 1) · tag (1 byte) · the fields of that tag. Numbers are big-endian
and of fixed size, so keys sort by them. The catalog allocates the ids of namespaces, databases and
tables once for the whole store and never reuses one. A name at the end of a key is its UTF-8; the
pattern of names leaves nothing to escape. Group ids are allocated per topic: receipts show them,
and a store-wide id would reveal how many groups other users have.

Files are below `storage/`.

| tag | after the tag | value | meaning |
|---|---|---|---|
| 01 | kind (1) | signed 64 bit | last allocated id of namespaces (1), databases (2), tables (3) … |
| 02 | nothing | msgpack | the root of all vault keys, see `vaults/rows.py` |
| 03 | nothing | msgpack | the failover policy, see `catalog/failover.py` |
| 10 | name | msgpack | a namespace |
| 11 | ns (4) name | msgpack | a database |
| 12 | ns (4) db (4) name | msgpack | a table |
| 13 | ns (4) db (4) name | msgpack | a cache space |
| 14 | ns (4) db (4) table (4) path | msgpack | a field of a table, see `catalog/tables.py` |
| 15 | ns (4) db (4) name | msgpack | an analyzer, see `catalog/analyzers.py` |
| 16 | ns (4) db (4) table (4) name | msgpack | an index |
| 17 | ns (4) db (4) table (4) index (4) | msgpack | recall, see `search/recall_rows.py` |
| 18 | name | msgpack | a user |
| 1A | ns (4) db (4) name | msgpack | a topic |
| 1B | ns (4) db (4) topic (4) name | msgpack | a group of a topic |
| 1C | ns (4) db (4) name | msgpack | a function, see `catalog/functions.py` |
| 1D | ns (4) db (4) name | msgpack | a vault |
| 1E | name | msgpack | a row of the cluster, see `catalog/replicas.py` |
| 1F | fingerprint (32) | msgpack | a revoked certificate, see `catalog/replicas.py` |
| 20 | ns (4) db (4) table (4) | signed 64 bit | number of records in the table |
| 21 | ns (4) db (4) space (4) | signed 64 bit | number of entries in the space |
| 22 | ns (4) db (4) topic (4) | position (8) total (8) | last position, see `txn/appends.py` |
| 23 | ns (4) db (4) topic (4) | position (8) total (8) | last position trimmed |
| 24 | ns (4) db (4) topic (4) name | signed 64 bit | the position of a reader |
| 25 | ns (4) db (4) topic (4) group (4) | struct | state of a group, see `topics/groups.py` |
| 26 | ns (4) db (4) topic (4) | signed 64 bit | last group id allocated in the topic |
| 27 | ns (4) db (4) table (4) | 8-byte sequence | the commit that declared the table |
| 28 | ns (4) db (4), or zeros | msgpack | mark of a restore, see `catalog/restores.py` |
| 29 | ns (4) db (4) vault (4) | msgpack | a vault's keys, wrapped |
| 2A | ns (4) db (4) vault (4) | signed 64 bit | number of records in the vault |
| 2B | ns (4) db (4) vault (4) | signed 64 bit | number of values its keys have sealed |
| 2C | ns (4) db (4) vault (4) | 8-byte sequence | the commit that last removed a value of it |
| 2D | ns (4) db (4) table (4) index (4) … | floats | lists of vectors, see `search/centroids.py` |
| 30 | ns (4) db (4) table (4) id | 8-byte sequence · msgpack | a record, see `records/records.py` |
| 31 | ns (4) db (4) space (4) key | 8-byte sequence · entry | a cache key, see `keyspace/` |
| 32 | ns (4) db (4) vault (4) id | msgpack | a record of a vault: its versions |
| 33 | ns (4) db (4) vault (4) id 00 version (8) | sealed | a value, see `vaults/rows.py` |
| 34 | ns (4) db (4) vault (4) key version (4) id 00 version (8) | nothing | values by key |
| 35 | ns (4) db (4) vault (4) id | version (8) | the last version of a record that was erased |
| 40 | ns (4) db (4) space (4) key | msgpack | a cache key's value, when it is large |
| 41 | ns (4) db (4) space (4) time (8) key | nothing | expiry of cache keys, see `keyspace/` |
| 50 | ns (4) db (4) table (4) index (4) … | length of id, or id | see `indexes/entries.py` |
| 51 | ns (4) db (4) table (4) index (4) | msgpack | progress of an index build |
| 60 | ns (4) db (4) topic (4) position (8) | struct | a message, see `topics/message_rows.py` |
| 61 | ns (4) db (4) topic (4) id | position (8) time (8) | a message id kept for deduplication |
| 62 | ns (4) db (4) topic (4) time (8) id | nothing | the same, ordered by time |
| 68 | ns (4) db (4) topic (4) group (4) position (8) | struct | see `topics/deliveries/` |
| 69 | ns (4) db (4) topic (4) group (4) time (8) position (8) | struct | by ack deadline |
| 6A | ns (4) db (4) topic (4) group (4) time (8) position (8) | nothing | to redeliver, by time |
| 6B | ns (4) db (4) topic (4) group (4) key 00 | struct | delivery that blocks its key |
| 6C | ns (4) db (4) topic (4) group (4) key 00 position (8) | nothing | messages parked behind it |
| 70 | sequence (8) | msgpack | an entry of the statement log, see `audit/trail.py` |
| 71 | sequence (8) | msgpack | an entry of the audit trail |
| 72 | vault (4) number (8) | msgpack | an entry of a vault's trail, see `vaults/trail.py` |
| 73 | vault (4) | number (8) hash (32) | the newest entry of a vault's trail |
| 74 | vault (4) id | number (8) | the newest trail entry of a write or erasure of a record |
| 75 | node | life · number | newest entry forwarded by a node, see `audit/forwarded.py` |

Values of tags 27, 2C, 30 and 31 are stamped: they begin with the sequence of the commit that wrote
them.

Tags 10 to 1F are the catalog. Statements look it up by name and cache the result, see
`txn/catalog_cache.py`. After the tag, the keys of all data in a place (a namespace or database)
begin with its ids. Dropping it is one range delete for each tag of `PLACED`. The engine's own key,
`engine.APPLIED_KEY`, has range 0.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import Any, Final

from protocol import limits, order
from protocol.errors import TooLarge

Range = tuple[bytes, bytes]
"""Half-open key range: start <= key < end."""
Pair = tuple[bytes, bytes]
"""A key and its value."""

STORE_RANGE: Final = b"\x00\x01"
TAG_AT: Final = len(STORE_RANGE)
"""Byte offset of the tag in a key."""
SEQUENCE_BYTES: Final = 8
"""Length of the sequence that a stamped value begins with."""

ALLOCATOR: Final = 0x01
VAULT_STORE: Final = 0x02
FAILOVER: Final = 0x03
NAMESPACE: Final = 0x10
DATABASE: Final = 0x11
TABLE: Final = 0x12
SPACE: Final = 0x13
FIELD: Final = 0x14
ANALYZER: Final = 0x15
INDEX: Final = 0x16
RECALL: Final = 0x17
USER: Final = 0x18
COUNT: Final = 0x20
ENTRY_COUNT: Final = 0x21
RECORD: Final = 0x30
ENTRY: Final = 0x31
CONTENT: Final = 0x40
EXPIRY: Final = 0x41
INDEX_ENTRY: Final = 0x50
INDEX_BUILD: Final = 0x51
CENTROIDS: Final = 0x2D
TOPIC: Final = 0x1A
GROUP: Final = 0x1B
FUNCTION: Final = 0x1C
VAULT: Final = 0x1D
REPLICA: Final = 0x1E
REVOKED: Final = 0x1F
TOPIC_LAST: Final = 0x22
TOPIC_TRIMMED: Final = 0x23
READER: Final = 0x24
GROUP_STATE: Final = 0x25
GROUP_IDS: Final = 0x26
DECLARED: Final = 0x27
RESTORING: Final = 0x28
VAULT_KEYS: Final = 0x29
VAULT_COUNT: Final = 0x2A
VAULT_SEALED: Final = 0x2B
VAULT_REMOVED: Final = 0x2C
VAULT_RECORD: Final = 0x32
VAULT_VALUE: Final = 0x33
VAULT_USE: Final = 0x34
VAULT_ERASED: Final = 0x35
MESSAGE: Final = 0x60
MESSAGE_ID: Final = 0x61
MESSAGE_ID_TIME: Final = 0x62
HAND_OUT: Final = 0x68
DEADLINE: Final = 0x69
READY: Final = 0x6A
KEY_HEAD: Final = 0x6B
KEY_PARKED: Final = 0x6C
STATEMENT: Final = 0x70
AUDIT: Final = 0x71
VAULT_ENTRY: Final = 0x72
VAULT_HEAD: Final = 0x73
VAULT_LAST: Final = 0x74
CARRIED: Final = 0x75

OF_TOPICS: Final = (
    GROUP, TOPIC_LAST, TOPIC_TRIMMED, READER, GROUP_STATE, GROUP_IDS, MESSAGE, MESSAGE_ID,
    MESSAGE_ID_TIME, HAND_OUT, DEADLINE, READY, KEY_HEAD, KEY_PARKED,
)  # fmt: skip
"""Tags of topic data; their keys continue with namespace, database, topic."""
OF_GROUPS: Final = (HAND_OUT, DEADLINE, READY, KEY_HEAD, KEY_PARKED)
"""Tags of a group's deliveries; their keys continue with namespace, database, topic, group."""
OF_VAULTS: Final = (
    VAULT_KEYS, VAULT_COUNT, VAULT_SEALED, VAULT_REMOVED, VAULT_RECORD, VAULT_VALUE, VAULT_USE,
    VAULT_ERASED,
)  # fmt: skip
"""Tags of vault data; their keys continue with namespace, database, vault."""
OF_TRAILS: Final = (VAULT_ENTRY, VAULT_HEAD, VAULT_LAST)
"""Tags of vault trails; their keys continue with a vault and outlive it."""
# Without users, which are dropped by the name of their place, and trails, which outlive
# their vaults.
PLACED: Final = (
    TABLE,
    SPACE,
    FIELD,
    COUNT,
    ENTRY_COUNT,
    DECLARED,
    RESTORING,
    RECORD,
    ENTRY,
    CONTENT,
    EXPIRY,
    INDEX,
    INDEX_ENTRY,
    INDEX_BUILD,
    CENTROIDS,
    RECALL,
    FUNCTION,
    ANALYZER,
    TOPIC,
    *OF_TOPICS,
    VAULT,
    *OF_VAULTS,
)
"""Tags whose keys continue with namespace and database; dropping a database deletes them."""
OF_INDEXES: Final = (INDEX, INDEX_ENTRY, INDEX_BUILD, CENTROIDS, RECALL)
"""Tags of index data; their keys continue with namespace, database, table."""

OF_ACCESS: Final = frozenset({USER})
"""Catalog tags that hold access rights."""
_TOGETHER: Final = frozenset({FIELD, INDEX, GROUP})
"""Catalog tags whose keys continue with their owner (a table or topic) and are looked up in one
scan per owner."""
STAMPED: Final = frozenset({DECLARED, VAULT_REMOVED, RECORD, ENTRY})
"""Tags whose values begin with the sequence of the commit that wrote them."""

TALLIES: Final = frozenset({COUNT, ENTRY_COUNT, TOPIC_TRIMMED, GROUP_STATE, VAULT_COUNT})
"""Tags of counters and states that a deletion rewrites without making them larger."""

_CATALOG: Final = 0x10
_CATALOG_END: Final = 0x20

# The numbers are on the disk: a new counter takes one that was never used.
NAMESPACE_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 1))
DATABASE_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 2))
TABLE_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 3))
SPACE_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 4))
INDEX_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 5))
TOPIC_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 6))
VAULT_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 8))
ALL_GROUP_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 7))
"""Last group id in stores of old versions, which allocated them store-wide, not per topic."""

EVERYTHING: Final[Range] = (STORE_RANGE, b"\xff\xff")
"""All keys of all ranges, without the engine's own."""
LOGGED: Final[tuple[Range, ...]] = (
    (STORE_RANGE, STORE_RANGE + bytes((RECALL,))),
    (STORE_RANGE + bytes((RECALL + 1,)), STORE_RANGE + bytes((INDEX_ENTRY,))),
    (STORE_RANGE + bytes((INDEX_ENTRY + 1,)), EVERYTHING[1]),
)
"""Key ranges of snapshots and of the state hash, in key order. Index entries are left out: they are
derived from records. So is the recall of indexes, which a restored state has not."""

_ONE: Final = struct.Struct(">I")
_TWO: Final = struct.Struct(">II")
_THREE: Final = struct.Struct(">III")
_FOUR: Final = struct.Struct(">IIII")
_COUNTER: Final = struct.Struct(">q")
_TIME: Final = struct.Struct(">Q")
RECORD_PREFIX_BYTES: Final = TAG_AT + 1 + _THREE.size
# Table, cache space, topic and vault all have three ids, so this is the length for each.
assert RECORD_PREFIX_BYTES == 15
ENTRY_PREFIX_BYTES: Final = RECORD_PREFIX_BYTES
EXPIRY_KEY_AT: Final = ENTRY_PREFIX_BYTES + _TIME.size
"""Byte offset of the cache key in a key of the expiry index."""


def _tag(tag: int) -> bytes:
    return STORE_RANGE + bytes((tag,))


# Made once: nearly each statement asks for keys with these tags.
_NAMESPACE: Final = _tag(NAMESPACE)
_DATABASE: Final = _tag(DATABASE)
_TABLE: Final = _tag(TABLE)
_SPACE: Final = _tag(SPACE)
_USER: Final = _tag(USER)
_COUNT: Final = _tag(COUNT)
_RECORD: Final = _tag(RECORD)


def namespace(name: str) -> bytes:
    """Return the key of a namespace's declaration."""
    return _NAMESPACE + name.encode()


def namespaces() -> Range:
    """Return the range of all namespace declarations, ordered by name."""
    return within(_NAMESPACE)


def database(namespace: int, name: str) -> bytes:
    """Return the key of a database's declaration."""
    return _DATABASE + _ONE.pack(namespace) + name.encode()


def databases(namespace: int) -> Range:
    """Return the range of a namespace's database declarations, ordered by name."""
    return within(_DATABASE + _ONE.pack(namespace))


def table(namespace: int, database: int, name: str) -> bytes:
    """Return the key of a table's declaration."""
    return _TABLE + _TWO.pack(namespace, database) + name.encode()


def tables(namespace: int, database: int) -> Range:
    """Return the range of a database's table declarations, ordered by name."""
    return within(_TABLE + _TWO.pack(namespace, database))


def field(namespace: int, database: int, table: int, path: str) -> bytes:
    """Return the key of a field's definition."""
    return fields(namespace, database, table)[0] + path.encode()


def fields(namespace: int, database: int, table: int) -> Range:
    """Return the range of a table's field definitions, ordered by path."""
    return within(_tag(FIELD) + _THREE.pack(namespace, database, table))


def field_at(key: bytes) -> tuple[int, str]:
    """Parse a field's key into its table id and path."""
    _, _, table = _THREE.unpack_from(key, TAG_AT + 1)
    return table, key[RECORD_PREFIX_BYTES:].decode()


def user(name: str) -> bytes:
    """Return the key of a user's declaration."""
    return _USER + name.encode()


def user_name(key: bytes) -> str:
    """Parse the name out of the key of a user's declaration."""
    return key[len(_USER) :].decode()


def users() -> Range:
    """Return the range of all user declarations, ordered by name."""
    return within(_USER)


def count(namespace: int, database: int, table: int) -> bytes:
    """Return the key of a table's record counter."""
    return _COUNT + _THREE.pack(namespace, database, table)


def of_all(tag: int, namespace: int, database: int) -> Range:
    """Return the range of all keys with one tag in a database. :param tag: of PLACED"""
    return within(_tag(tag) + _TWO.pack(namespace, database))


def third(key: bytes) -> int:
    """Parse the third id of a key, after namespace and database: a table, a topic."""
    (number,) = _ONE.unpack_from(key, TAG_AT + 1 + _TWO.size)
    assert isinstance(number, int)
    return number


def fourth(key: bytes) -> int:
    """Parse the fourth id of a key, after namespace, database and topic: a group."""
    (number,) = _ONE.unpack_from(key, RECORD_PREFIX_BYTES)
    assert isinstance(number, int)
    return number


def table_declared(namespace: int, database: int, table: int) -> bytes:
    """Return the key that holds the sequence of the commit that declared a table."""
    return _tag(DECLARED) + _THREE.pack(namespace, database, table)


def record_prefix(namespace: int, database: int, table: int) -> bytes:
    """Return the prefix of a table's record keys; the encoded record id follows it."""
    return _RECORD + _THREE.pack(namespace, database, table)


def table_of(prefix: bytes) -> tuple[int, int, int]:
    """Parse a record prefix into the ids of namespace, database and table."""
    namespace, database, table = _THREE.unpack_from(prefix, TAG_AT + 1)
    return namespace, database, table


def all_records(prefix: bytes, ids: Sequence[Any]) -> list[bytes]:
    """Return the keys of several records of a table, as `record` does for each."""
    encoded = order.encode_all(ids)
    if encoded and max(map(len, encoded)) > limits.RECORD_ID_BYTES:
        return [record(prefix, id) for id in ids]
    return [prefix + one for one in encoded]


def record(prefix: bytes, id: Any) -> bytes:
    """Return the key of a record from its table's prefix and its checked id.

    :raises TooLarge: the encoded id exceeds `limits.RECORD_ID_BYTES`
    """
    encoded = order.encode(id)
    # This bounds keys of index entries too, which hold an id behind the indexed values.
    if len(encoded) > limits.RECORD_ID_BYTES:
        raise TooLarge(
            f"a record id takes at most {limits.RECORD_ID_BYTES} bytes in a key, this one takes"
            f" {len(encoded)}",
            limit=limits.RECORD_ID_BYTES,
            size=len(encoded),
        )
    return prefix + encoded


def record_id(key: bytes) -> Any:
    """Parse the id out of a record's key."""
    return order.decode_id(key, RECORD_PREFIX_BYTES)


def space(namespace: int, database: int, name: str) -> bytes:
    """Return the key of a cache space's declaration."""
    return _SPACE + _TWO.pack(namespace, database) + name.encode()


def spaces(namespace: int, database: int) -> Range:
    """Return the range of a database's cache space declarations, ordered by name."""
    return within(_SPACE + _TWO.pack(namespace, database))


def function(namespace: int, database: int, name: str) -> bytes:
    """Return the key of a function's declaration."""
    return _tag(FUNCTION) + _TWO.pack(namespace, database) + name.encode()


def functions(namespace: int, database: int) -> Range:
    """Return the range of a database's function declarations, ordered by name."""
    return within(_tag(FUNCTION) + _TWO.pack(namespace, database))


def analyzer(namespace: int, database: int, name: str) -> bytes:
    """Return the key of an analyzer's declaration."""
    return _tag(ANALYZER) + _TWO.pack(namespace, database) + name.encode()


def analyzers(namespace: int, database: int) -> Range:
    """Return the range of a database's analyzer declarations, ordered by name."""
    return within(_tag(ANALYZER) + _TWO.pack(namespace, database))


def in_space(tag: int, namespace: int, database: int, space: int) -> bytes:
    """Return the key prefix of a cache space. :param tag: ENTRY_COUNT, ENTRY, CONTENT or EXPIRY"""
    return _tag(tag) + _THREE.pack(namespace, database, space)


def expiry(prefix: bytes, time_us: int, key: bytes = b"") -> bytes:
    """Return the key of an entry of a space's expiry index. :param prefix: of its EXPIRY keys"""
    # Time first: a sweep reads from the start of the range, and stops at the present.
    return prefix + _TIME.pack(time_us) + key


def expiry_time(key: bytes) -> int:
    """Parse the time out of a key of the expiry index, microseconds since 1970."""
    (time_us,) = _TIME.unpack_from(key, ENTRY_PREFIX_BYTES)
    assert isinstance(time_us, int)
    return time_us


def index(namespace: int, database: int, table: int, name: str) -> bytes:
    """Return the key of an index's declaration."""
    return _tag(INDEX) + _THREE.pack(namespace, database, table) + name.encode()


def indexes(namespace: int, database: int, table: int) -> Range:
    """Return the range of a table's index declarations, ordered by name."""
    return within(_tag(INDEX) + _THREE.pack(namespace, database, table))


def all_indexes() -> Range:
    """Return the range of all index declarations."""
    return within(_tag(INDEX))


def index_table(key: bytes) -> tuple[int, int, int]:
    """Parse the ids of namespace, database and table out of the key of an index's declaration."""
    namespace, database, table = _THREE.unpack_from(key, TAG_AT + 1)
    return namespace, database, table


def index_name(key: bytes) -> str:
    """Parse the name out of the key of an index's declaration."""
    return key[TAG_AT + 1 + _THREE.size :].decode()


def of_index(tag: int, namespace: int, database: int, table: int, index: int) -> bytes:
    """Return the key prefix of an index's data. :param tag: of OF_INDEXES but INDEX"""
    return _tag(tag) + _FOUR.pack(namespace, database, table, index)


def index_ranges(namespace: int, database: int, table: int) -> list[Range]:
    """Return the ranges of all index data of a table, index declarations included."""
    # By table, not by index: the entries of successors under construction go too.
    numbers = _THREE.pack(namespace, database, table)
    return [within(_tag(tag) + numbers) for tag in OF_INDEXES]


def topic(namespace: int, database: int, name: str) -> bytes:
    """Return the key of a topic's declaration."""
    return _tag(TOPIC) + _TWO.pack(namespace, database) + name.encode()


def topics(namespace: int, database: int) -> Range:
    """Return the range of a database's topic declarations, ordered by name."""
    return within(_tag(TOPIC) + _TWO.pack(namespace, database))


def of_topic(tag: int, namespace: int, database: int, topic: int) -> bytes:
    """Return the key prefix of a topic's data, or its one key of that tag.

    :param tag: of OF_TOPICS
    """
    return _tag(tag) + _THREE.pack(namespace, database, topic)


def group_at(key: bytes) -> tuple[int, str]:
    """Parse the topic id and the name out of the key of a group's declaration."""
    _, _, topic = _THREE.unpack_from(key, TAG_AT + 1)
    return topic, key[RECORD_PREFIX_BYTES:].decode()


def of_group(tag: int, namespace: int, database: int, topic: int, group: int) -> bytes:
    """Return the key prefix of a group's data, or its one key of that tag.

    :param tag: GROUP_STATE or of OF_GROUPS
    """
    return _tag(tag) + _FOUR.pack(namespace, database, topic, group)


# Made once: each commit with an entry asks for one.
_KEPT: Final = {tag: _tag(tag) for tag in (STATEMENT, AUDIT)}


def kept(tag: int, sequence: int) -> bytes:
    """Return the key of a commit's log entry. :param tag: STATEMENT or AUDIT"""
    return _KEPT[tag] + _TIME.pack(sequence)


def all_kept(tag: int) -> Range:
    """Return the range of the statement log or the audit trail. :param tag: STATEMENT or AUDIT"""
    return within(_tag(tag))


def kept_sequence(key: bytes) -> int:
    """Parse the sequence out of the key of an entry of the statement log or audit trail."""
    (sequence,) = _TIME.unpack_from(key, TAG_AT + 1)
    assert isinstance(sequence, int)
    return sequence


def restoring(namespace: int, database: int) -> bytes:
    """Return the key that marks a database or namespace as being restored.

    :param database: 0: the namespace itself
    """
    return _tag(RESTORING) + _TWO.pack(namespace, database)


def all_restoring() -> Range:
    """Return the range of all marks of restores."""
    return within(_tag(RESTORING))


def restoring_at(key: bytes) -> tuple[int, int]:
    """Parse the ids of namespace and database out of the key of a mark."""
    namespace, database = _TWO.unpack_from(key, TAG_AT + 1)
    return namespace, database


def in_topic(namespace: int, database: int, topic: int) -> list[Range]:
    """Return the ranges to delete when a topic is dropped, except its own declaration."""
    return [within(of_topic(tag, namespace, database, topic)) for tag in OF_TOPICS]


def in_group(namespace: int, database: int, topic: int, group: int) -> list[Range]:
    """Return the ranges of a group's deliveries."""
    return [within(of_group(tag, namespace, database, topic, group)) for tag in OF_GROUPS]


def in_namespace(namespace: int) -> list[Range]:
    """Return the ranges to delete when a namespace is dropped, except its own declaration."""
    # Keys of all its databases begin with its id, so no list of them is needed.
    number = _ONE.pack(namespace)
    return [within(_tag(tag) + number) for tag in (DATABASE, *PLACED)]


def in_database(namespace: int, database: int) -> list[Range]:
    """Return the ranges to delete when a database is dropped, except its own declaration."""
    numbers = _TWO.pack(namespace, database)
    return [within(_tag(tag) + numbers) for tag in PLACED]


def tagged(tag: int) -> Range:
    """Return the range of all keys with a tag."""
    return within(_tag(tag))


def with_tag(tag: int, key: bytes) -> bytes:
    """Return a key with its tag replaced."""
    return _tag(tag) + key[TAG_AT + 1 :]


def within(prefix: bytes) -> Range:
    """Return the range of all keys that begin with `prefix`, which must not consist of FF bytes
    only."""
    # The next prefix: increment the last byte that is not FF, which has no successor.
    head = prefix.rstrip(b"\xff")
    return prefix, head[:-1] + bytes((head[-1] + 1,))


def is_record(key: bytes) -> bool:
    """Return True if a key is a record's."""
    return key[TAG_AT] == RECORD


def is_derived(key: bytes) -> bool:
    """Return True if a key is an index entry; these are derived and not in the log."""
    return key[TAG_AT] == INDEX_ENTRY


def is_build(key: bytes) -> bool:
    """Return True if a key holds the progress of an index build."""
    return key[TAG_AT] == INDEX_BUILD


def is_stamped(key: bytes) -> bool:
    """Return True if a key's value begins with the sequence of the commit that wrote it."""
    return key[TAG_AT] in STAMPED


def stamped(key: bytes, value: bytes | None, sequence: int) -> bytes | None:
    """Return a value of commit `sequence` as the engine stores it: with its stamp if the key has
    one."""
    if value is None or key[TAG_AT] not in STAMPED:
        return value
    # A write set holds the sequence before this change there (`write_set.py`).
    return sequence.to_bytes(SEQUENCE_BYTES, "big") + value[SEQUENCE_BYTES:]


def is_of_access(key: bytes) -> bool:
    """Return True if a key holds access rights."""
    return key[TAG_AT] in OF_ACCESS


def is_catalog(key: bytes) -> bool:
    """Return True if a key belongs to the catalog, whose look-ups are cached."""
    # By range: a new tag of the catalog is covered without a change here.
    return _CATALOG <= key[TAG_AT] < _CATALOG_END


def touches_catalog(start: bytes, end: bytes) -> bool:
    """Return True if a range overlaps the catalog."""
    # Half-open ranges overlap if each begins before the other ends.
    return start < _tag(_CATALOG_END) and end > _tag(_CATALOG)


def touches(start: bytes, end: bytes, tags: Collection[int]) -> bool:
    """Return True if a range overlaps the keys of any of `tags`."""
    return any(start < _tag(tag + 1) and end > _tag(tag) for tag in tags)


def touches_access(start: bytes, end: bytes) -> bool:
    """Return True if a range overlaps the keys that hold access rights."""
    return touches(start, end, OF_ACCESS)


def declared(key: bytes) -> tuple[bytes, ...]:
    """Return the dependency keys of a catalog key: cached look-ups that depend on any of them
    become stale. Always the key itself; for a field, index or group also the prefix that its table
    or topic shares with the others."""
    # A look-up scans all fields of a table. It cannot depend on the key of a field that is
    # declared later, so it depends on their common prefix.
    if key[TAG_AT] in _TOGETHER:
        return key, key[:RECORD_PREFIX_BYTES]
    return (key,)


def holds_declared(start: bytes, end: bytes, declared: bytes) -> bool:
    """Return True if deleting a range invalidates a dependency key, which is a key or a prefix."""
    # The last case: the range lies within a prefix, and deletes a part of what was scanned.
    return declared < end and (start <= declared or start.startswith(declared))


def pack_counter(number: int) -> bytes:
    """Encode a counter: signed 64 bit, big-endian."""
    return _COUNTER.pack(number)


def unpack_counter(value: bytes | None) -> int:
    """Decode a counter; an absent one is 0."""
    if value is None:
        return 0
    (number,) = _COUNTER.unpack(value)
    assert isinstance(number, int)
    return number
