"""Every key of the state, on one page.

A key is: range (2 bytes, today always 1) · tag (1 byte) · what the tag says. Numbers are
big-endian and fixed in size, so keys sort by them. Ids of namespaces, databases and tables are
given out by the catalog, once for the whole store, and never reused. A name at the end of a key is
its UTF-8: the pattern of names leaves nothing to escape. Receipts show the ids of groups, so those
are given out for each topic: nobody learns from them how many groups others have.

| tag | after the tag | value | what |
|---|---|---|---|
| 01 | kind (1) | signed 64 bit | last id of a namespace (1), database (2), table (3) … |
| 02 | nothing | msgpack | what all vaults hang on, see `vault_rows.py` |
| 03 | nothing | msgpack | the failover policy, see `failover.py` |
| 10 | name | msgpack | a namespace |
| 11 | ns (4) name | msgpack | a database |
| 12 | ns (4) db (4) name | msgpack | a table |
| 13 | ns (4) db (4) name | msgpack | a cache space |
| 14 | ns (4) db (4) table (4) path | msgpack | a field of a table, see `fields.py` |
| 16 | ns (4) db (4) table (4) name | msgpack | an index |
| 18 | name | msgpack | a user |
| 1A | ns (4) db (4) name | msgpack | a topic |
| 1B | ns (4) db (4) topic (4) name | msgpack | a group of a topic |
| 1C | ns (4) db (4) name | msgpack | a function, see `functions.py` |
| 1D | ns (4) db (4) name | msgpack | a vault |
| 1E | name | msgpack | a row of the cluster, see `replicas.py` |
| 1F | fingerprint (32) | msgpack | a certificate that was revoked, see `revocations.py` |
| 20 | ns (4) db (4) table (4) | signed 64 bit | how many records the table holds |
| 21 | ns (4) db (4) space (4) | signed 64 bit | how many entries the space holds |
| 22 | ns (4) db (4) topic (4) | position (8) total (8) | last position, see `appends.py` |
| 23 | ns (4) db (4) topic (4) | position (8) total (8) | last position trimmed |
| 24 | ns (4) db (4) topic (4) name | signed 64 bit | the position of a reader |
| 25 | ns (4) db (4) topic (4) group (4) | struct | where a group stands, see `groups.py` |
| 26 | ns (4) db (4) topic (4) | signed 64 bit | last id of a group of the topic |
| 27 | ns (4) db (4) table (4) | 8-byte sequence | the commit that declared the table |
| 28 | ns (4) db (4), or zeros | msgpack | a place that a script is making, see `restores.py` |
| 29 | ns (4) db (4) vault (4) | msgpack | a vault's keys, wrapped |
| 2A | ns (4) db (4) vault (4) | signed 64 bit | how many records the vault holds |
| 2B | ns (4) db (4) vault (4) | signed 64 bit | how many values its keys have sealed |
| 2C | ns (4) db (4) vault (4) | 8-byte sequence | the commit that last removed a value of it |
| 30 | ns (4) db (4) table (4) id | 8-byte sequence · msgpack | a record, see `records.py` |
| 31 | ns (4) db (4) space (4) key | 8-byte sequence · entry | a cache key, see `spaces.py` |
| 32 | ns (4) db (4) vault (4) id | msgpack | a record of a vault: which versions there are |
| 33 | ns (4) db (4) vault (4) id 00 version (8) | sealed | a value, see `vault_rows.py` |
| 34 | ns (4) db (4) vault (4) key version (4) id 00 version (8) | nothing | what a key has sealed |
| 35 | ns (4) db (4) vault (4) id | version (8) | the last version of a record that was erased |
| 40 | ns (4) db (4) space (4) key | msgpack | a cache key's value, when it is large |
| 41 | ns (4) db (4) space (4) time (8) key | nothing | a cache key's expiry, see `spaces.py` |
| 50 | ns (4) db (4) table (4) index (4) … | length of id, or id | see `indexes.py` |
| 51 | ns (4) db (4) table (4) index (4) | msgpack | how far an index is built |
| 60 | ns (4) db (4) topic (4) position (8) | time (8) total (8) · message | see `messages.py` |
| 61 | ns (4) db (4) topic (4) id | position (8) time (8) | an id that is remembered |
| 62 | ns (4) db (4) topic (4) time (8) id | nothing | the same, by when it was given |
| 68 | ns (4) db (4) topic (4) group (4) position (8) | struct | see `hand_outs/rows.py` |
| 69 | ns (4) db (4) topic (4) group (4) time (8) position (8) | struct | those out, by deadline |
| 6A | ns (4) db (4) topic (4) group (4) time (8) position (8) | nothing | those to hand out again |
| 6B | ns (4) db (4) topic (4) group (4) key 00 | struct | the one that a key waits for |
| 6C | ns (4) db (4) topic (4) group (4) key 00 position (8) | nothing | those that wait for it |
| 70 | sequence (8) | msgpack | an entry of the statement log, see `statements.py` |
| 71 | sequence (8) | msgpack | an entry of the audit trail |
| 72 | vault (4) number (8) | msgpack | an entry of a vault's trail, see `vault_trail.py` |
| 73 | vault (4) | number (8) hash (32) | the newest entry of a vault's trail |
| 74 | vault (4) id | number (8) | the newest entry that says a record was written or erased |
| 75 | node | life · number | up to where a node's entries are kept, see `forwarded.py` |

Values of tags 27, 2C, 30 and 31 are stamped: they begin with the sequence of the commit that wrote
them.

Tags 10 to 1F are the catalog: what statements look up by name and remember, see
`lookups.py`. All that belongs to a place begins, after the tag, with the numbers of that place:
dropping one is a range delete for each tag of `PLACED`. The engine's own note,
`engine.APPLIED_KEY`, has range 0.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Any, Final

from protocol import limits, order
from protocol.errors import TooLarge

Range = tuple[bytes, bytes]
"""start <= key < end"""

STORE_RANGE: Final = b"\x00\x01"
TAG_AT: Final = len(STORE_RANGE)
"""Where the tag stands in a key."""

ALLOCATOR: Final = 0x01
VAULT_STORE: Final = 0x02
FAILOVER: Final = 0x03
NAMESPACE: Final = 0x10
DATABASE: Final = 0x11
TABLE: Final = 0x12
SPACE: Final = 0x13
FIELD: Final = 0x14
INDEX: Final = 0x16
USER: Final = 0x18
COUNT: Final = 0x20
ENTRY_COUNT: Final = 0x21
RECORD: Final = 0x30
ENTRY: Final = 0x31
CONTENT: Final = 0x40
EXPIRY: Final = 0x41
INDEX_ENTRY: Final = 0x50
INDEX_BUILD: Final = 0x51
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
"""Tags whose keys go on with namespace, database, topic and belong to it."""
OF_GROUPS: Final = (HAND_OUT, DEADLINE, READY, KEY_HEAD, KEY_PARKED)
"""Tags whose keys go on with namespace, database, topic, group and say what it has handed out."""
OF_VAULTS: Final = (
    VAULT_KEYS, VAULT_COUNT, VAULT_SEALED, VAULT_REMOVED, VAULT_RECORD, VAULT_VALUE, VAULT_USE,
    VAULT_ERASED,
)  # fmt: skip
"""Tags whose keys go on with namespace, database, vault and belong to it."""
OF_TRAILS: Final = (VAULT_ENTRY, VAULT_HEAD, VAULT_LAST)
"""Tags whose keys go on with a vault and outlive it."""
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
    FUNCTION,
    TOPIC,
    *OF_TOPICS,
    VAULT,
    *OF_VAULTS,
)
"""Tags whose keys go on with namespace, database (and more)."""
OF_INDEXES: Final = (INDEX, INDEX_ENTRY, INDEX_BUILD)
"""Tags whose keys go on with namespace, database, table and belong to its indexes."""

OF_ACCESS: Final = frozenset({USER})
"""Tags of the catalog that say who may do what."""
_TOGETHER: Final = frozenset({FIELD, INDEX, GROUP})
"""Tags of the catalog whose keys go on with what they are of, and are looked up all at once."""
STAMPED: Final = frozenset({DECLARED, VAULT_REMOVED, RECORD, ENTRY})
"""Tags whose values begin with the sequence of the commit that wrote them."""

TALLIES: Final = frozenset({COUNT, ENTRY_COUNT, TOPIC_TRIMMED, GROUP_STATE, VAULT_COUNT})
"""Tags of what is written anew, and grows no larger, when something is taken away."""

_CATALOG: Final = 0x10
_CATALOG_END: Final = 0x20

NAMESPACE_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 1))
DATABASE_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 2))
TABLE_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 3))
SPACE_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 4))
INDEX_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 5))
TOPIC_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 6))
VAULT_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 8))
ALL_GROUP_IDS: Final = STORE_RANGE + bytes((ALLOCATOR, 7))
"""The last id that was given to a group when they were given out for the whole store."""

EVERYTHING: Final[Range] = (STORE_RANGE, b"\xff\xff")
"""All keys of all ranges, and not the engine's own."""
LOGGED: Final[tuple[Range, ...]] = (
    (STORE_RANGE, STORE_RANGE + bytes((INDEX_ENTRY,))),
    (STORE_RANGE + bytes((INDEX_ENTRY + 1,)), EVERYTHING[1]),
)
"""All of them that the log speaks of, in order: what indexes hold follows from the others."""

_ONE: Final = struct.Struct(">I")
_TWO: Final = struct.Struct(">II")
_THREE: Final = struct.Struct(">III")
_FOUR: Final = struct.Struct(">IIII")
_COUNTER: Final = struct.Struct(">q")
_TIME: Final = struct.Struct(">Q")
RECORD_PREFIX_BYTES: Final = TAG_AT + 1 + _THREE.size
assert RECORD_PREFIX_BYTES == 15
ENTRY_PREFIX_BYTES: Final = RECORD_PREFIX_BYTES
EXPIRY_KEY_AT: Final = ENTRY_PREFIX_BYTES + _TIME.size
"""Where in a key of the expiry index the cache key begins."""


def _tag(tag: int) -> bytes:
    return STORE_RANGE + bytes((tag,))


_NAMESPACE: Final = _tag(NAMESPACE)
_DATABASE: Final = _tag(DATABASE)
_TABLE: Final = _tag(TABLE)
_SPACE: Final = _tag(SPACE)
_USER: Final = _tag(USER)
_COUNT: Final = _tag(COUNT)
_RECORD: Final = _tag(RECORD)


def namespace(name: str) -> bytes:
    """Where a namespace is declared."""
    return _NAMESPACE + name.encode()


def namespaces() -> Range:
    """All declarations of namespaces, by name."""
    return within(_NAMESPACE)


def database(namespace: int, name: str) -> bytes:
    """Where a database is declared."""
    return _DATABASE + _ONE.pack(namespace) + name.encode()


def databases(namespace: int) -> Range:
    """The declarations of a namespace's databases, by name."""
    return within(_DATABASE + _ONE.pack(namespace))


def table(namespace: int, database: int, name: str) -> bytes:
    """Where a table is declared."""
    return _TABLE + _TWO.pack(namespace, database) + name.encode()


def tables(namespace: int, database: int) -> Range:
    """The declarations of a database's tables, by name."""
    return within(_TABLE + _TWO.pack(namespace, database))


def field(namespace: int, database: int, table: int, path: str) -> bytes:
    """Where a field of a table is defined."""
    return fields(namespace, database, table)[0] + path.encode()


def fields(namespace: int, database: int, table: int) -> Range:
    """The definitions of a table's fields, by path."""
    return within(_tag(FIELD) + _THREE.pack(namespace, database, table))


def field_at(key: bytes) -> tuple[int, str]:
    """The table and the path in the key of a field."""
    _, _, table = _THREE.unpack_from(key, TAG_AT + 1)
    return table, key[RECORD_PREFIX_BYTES:].decode()


def user(name: str) -> bytes:
    """Where a user is declared."""
    return _USER + name.encode()


def user_name(key: bytes) -> str:
    """The name in the key of a user's declaration."""
    return key[len(_USER) :].decode()


def users() -> Range:
    """All declarations of users, by name."""
    return within(_USER)


def count(namespace: int, database: int, table: int) -> bytes:
    """The counter of a table's records."""
    return _COUNT + _THREE.pack(namespace, database, table)


def of_all(tag: int, namespace: int, database: int) -> Range:
    """All keys of one tag of what stands in a database. :param tag: of PLACED"""
    return within(_tag(tag) + _TWO.pack(namespace, database))


def third(key: bytes) -> int:
    """The number after those of namespace and database in a key: a table's, a topic's."""
    (number,) = _ONE.unpack_from(key, TAG_AT + 1 + _TWO.size)
    assert isinstance(number, int)
    return number


def fourth(key: bytes) -> int:
    """The number behind that one: a group's."""
    (number,) = _ONE.unpack_from(key, RECORD_PREFIX_BYTES)
    assert isinstance(number, int)
    return number


def table_declared(namespace: int, database: int, table: int) -> bytes:
    """Where it stands which commit declared a table."""
    return _tag(DECLARED) + _THREE.pack(namespace, database, table)


def record_prefix(namespace: int, database: int, table: int) -> bytes:
    """What the keys of a table's records begin with; `record_id` reads what follows."""
    return _RECORD + _THREE.pack(namespace, database, table)


def table_of(prefix: bytes) -> tuple[int, int, int]:
    """The numbers of namespace, database and table in what the keys of its records begin with."""
    namespace, database, table = _THREE.unpack_from(prefix, TAG_AT + 1)
    return namespace, database, table


def record(prefix: bytes, id: Any) -> bytes:
    """The key of a record from its table's prefix and its checked id.

    :raises TooLarge: the id takes more than `limits.RECORD_ID_BYTES`
    """
    encoded = order.encode(id)
    if len(encoded) > limits.RECORD_ID_BYTES:
        raise TooLarge(
            f"a record id takes at most {limits.RECORD_ID_BYTES} bytes in a key,"
            f" this one {len(encoded)}",
            limit=limits.RECORD_ID_BYTES,
            size=len(encoded),
        )
    return prefix + encoded


def record_id(key: bytes) -> Any:
    """The id in a record's key."""
    return order.decode_id(key, RECORD_PREFIX_BYTES)


def space(namespace: int, database: int, name: str) -> bytes:
    """Where a cache space is declared."""
    return _SPACE + _TWO.pack(namespace, database) + name.encode()


def spaces(namespace: int, database: int) -> Range:
    """The declarations of a database's cache spaces, by name."""
    return within(_SPACE + _TWO.pack(namespace, database))


def function(namespace: int, database: int, name: str) -> bytes:
    """Where a function is declared."""
    return _tag(FUNCTION) + _TWO.pack(namespace, database) + name.encode()


def functions(namespace: int, database: int) -> Range:
    """The declarations of a database's functions, by name."""
    return within(_tag(FUNCTION) + _TWO.pack(namespace, database))


def in_space(tag: int, namespace: int, database: int, space: int) -> bytes:
    """What keys of a cache space begin with. :param tag: ENTRY_COUNT, ENTRY, CONTENT or EXPIRY"""
    return _tag(tag) + _THREE.pack(namespace, database, space)


def expiry(prefix: bytes, time_us: int, key: bytes = b"") -> bytes:
    """Where the expiry index of a space, whose keys begin with `prefix`, holds a cache key."""
    return prefix + _TIME.pack(time_us) + key


def expiry_time(key: bytes) -> int:
    """The time in a key of the expiry index, microseconds since 1970."""
    (time_us,) = _TIME.unpack_from(key, ENTRY_PREFIX_BYTES)
    assert isinstance(time_us, int)
    return time_us


def index(namespace: int, database: int, table: int, name: str) -> bytes:
    """Where an index of a table is declared."""
    return _tag(INDEX) + _THREE.pack(namespace, database, table) + name.encode()


def indexes(namespace: int, database: int, table: int) -> Range:
    """The declarations of a table's indexes, by name."""
    return within(_tag(INDEX) + _THREE.pack(namespace, database, table))


def all_indexes() -> Range:
    """The declarations of all indexes."""
    return within(_tag(INDEX))


def index_table(key: bytes) -> tuple[int, int, int]:
    """The numbers of namespace, database and table in the key of an index's declaration."""
    namespace, database, table = _THREE.unpack_from(key, TAG_AT + 1)
    return namespace, database, table


def index_name(key: bytes) -> str:
    """The name in the key of an index's declaration."""
    return key[TAG_AT + 1 + _THREE.size :].decode()


def of_index(tag: int, namespace: int, database: int, table: int, index: int) -> bytes:
    """What keys of an index begin with. :param tag: INDEX_ENTRY or INDEX_BUILD"""
    return _tag(tag) + _FOUR.pack(namespace, database, table, index)


def index_ranges(namespace: int, database: int, table: int) -> list[Range]:
    """Everything that the indexes of a table hold, their declarations among it."""
    numbers = _THREE.pack(namespace, database, table)
    return [within(_tag(tag) + numbers) for tag in OF_INDEXES]


def topic(namespace: int, database: int, name: str) -> bytes:
    """Where a topic is declared."""
    return _tag(TOPIC) + _TWO.pack(namespace, database) + name.encode()


def topics(namespace: int, database: int) -> Range:
    """The declarations of a database's topics, by name."""
    return within(_tag(TOPIC) + _TWO.pack(namespace, database))


def of_topic(tag: int, namespace: int, database: int, topic: int) -> bytes:
    """What keys of a topic begin with, or its one key of that tag. :param tag: of OF_TOPICS"""
    return _tag(tag) + _THREE.pack(namespace, database, topic)


def group_at(key: bytes) -> tuple[int, str]:
    """The topic's number and the name in the key of a group's declaration."""
    _, _, topic = _THREE.unpack_from(key, TAG_AT + 1)
    return topic, key[RECORD_PREFIX_BYTES:].decode()


def of_group(tag: int, namespace: int, database: int, topic: int, group: int) -> bytes:
    """What keys of a group begin with, or its one key. :param tag: GROUP_STATE or of OF_GROUPS"""
    return _tag(tag) + _FOUR.pack(namespace, database, topic, group)


_KEPT: Final = {tag: _tag(tag) for tag in (STATEMENT, AUDIT)}


def kept(tag: int, sequence: int) -> bytes:
    """Where an entry of a commit stands. :param tag: STATEMENT or AUDIT"""
    return _KEPT[tag] + _TIME.pack(sequence)


def all_kept(tag: int) -> Range:
    """All entries of the statement log, or the audit trail. :param tag: as `kept`"""
    return within(_tag(tag))


def kept_sequence(key: bytes) -> int:
    """The sequence in the key of an entry."""
    (sequence,) = _TIME.unpack_from(key, TAG_AT + 1)
    assert isinstance(sequence, int)
    return sequence


def restoring(namespace: int, database: int) -> bytes:
    """Where it stands that a place is being made. :param database: 0: the namespace itself"""
    return _tag(RESTORING) + _TWO.pack(namespace, database)


def all_restoring() -> Range:
    """All places that are being made."""
    return within(_tag(RESTORING))


def restoring_at(key: bytes) -> tuple[int, int]:
    """The numbers of namespace and database in the key of one."""
    namespace, database = _TWO.unpack_from(key, TAG_AT + 1)
    return namespace, database


def in_topic(namespace: int, database: int, topic: int) -> list[Range]:
    """Everything that goes when a topic is dropped, its own declaration apart."""
    return [within(of_topic(tag, namespace, database, topic)) for tag in OF_TOPICS]


def in_group(namespace: int, database: int, topic: int, group: int) -> list[Range]:
    """Everything that a group has handed out."""
    return [within(of_group(tag, namespace, database, topic, group)) for tag in OF_GROUPS]


def in_namespace(namespace: int) -> list[Range]:
    """Everything that goes when a namespace is dropped, its own declaration apart."""
    number = _ONE.pack(namespace)
    return [within(_tag(tag) + number) for tag in (DATABASE, *PLACED)]


def in_database(namespace: int, database: int) -> list[Range]:
    """Everything that goes when a database is dropped, its own declaration apart."""
    numbers = _TWO.pack(namespace, database)
    return [within(_tag(tag) + numbers) for tag in PLACED]


def tagged(tag: int) -> Range:
    """All keys of a tag."""
    return within(_tag(tag))


def with_tag(tag: int, key: bytes) -> bytes:
    """A key that goes on behind its tag as another does."""
    return _tag(tag) + key[TAG_AT + 1 :]


def within(prefix: bytes) -> Range:
    """The range of all keys that begin with `prefix`, which must not be all FF."""
    head = prefix.rstrip(b"\xff")
    return prefix, head[:-1] + bytes((head[-1] + 1,))


def is_record(key: bytes) -> bool:
    """Whether a key is that of a record."""
    return key[TAG_AT] == RECORD


def is_derived(key: bytes) -> bool:
    """Whether a key is what an index holds, of which the log says nothing."""
    return key[TAG_AT] == INDEX_ENTRY


def is_build(key: bytes) -> bool:
    """Whether a key says how far an index is built."""
    return key[TAG_AT] == INDEX_BUILD


def is_stamped(key: bytes) -> bool:
    """Whether a key's value begins with the sequence of the commit that wrote it."""
    return key[TAG_AT] in STAMPED


def is_of_access(key: bytes) -> bool:
    """Whether a key says who may do what."""
    return key[TAG_AT] in OF_ACCESS


def is_catalog(key: bytes) -> bool:
    """Whether a key belongs to what statements look up by name and remember."""
    return _CATALOG <= key[TAG_AT] < _CATALOG_END


def touches_catalog(start: bytes, end: bytes) -> bool:
    """Whether a range holds any key of the catalog."""
    return start < _tag(_CATALOG_END) and end > _tag(_CATALOG)


def touches(start: bytes, end: bytes, tags: Collection[int]) -> bool:
    """Whether a range holds any key of some tags."""
    return any(start < _tag(tag + 1) and end > _tag(tag) for tag in tags)


def touches_access(start: bytes, end: bytes) -> bool:
    """Whether a range holds any key that says who may do what."""
    return touches(start, end, OF_ACCESS)


def declared(key: bytes) -> tuple[bytes, ...]:
    """By what a key of the catalog is known to those who looked it up: by itself; fields, indexes
    and groups also by the table or topic that they are of, together with the others of it."""
    if key[TAG_AT] in _TOGETHER:
        return key, key[:RECORD_PREFIX_BYTES]
    return (key,)


def holds_declared(start: bytes, end: bytes, declared: bytes) -> bool:
    """Whether a range that is deleted holds any of what one of `declared` stands for."""
    return declared < end and (start <= declared or start.startswith(declared))


def pack_counter(number: int) -> bytes:
    """The value of a counter: signed 64 bit, big-endian."""
    return _COUNTER.pack(number)


def unpack_counter(value: bytes | None) -> int:
    """What a counter says; an absent one says 0."""
    if value is None:
        return 0
    (number,) = _COUNTER.unpack(value)
    assert isinstance(number, int)
    return number
