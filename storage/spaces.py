"""The rules of cache keys: read, set, swapped, counted, locked, expired, listed, swept.

An entry is stamped as a record is, and then holds:

    0   8  sequence of the commit that wrote it
    8   8  when it expires, microseconds since 1970 of log time; 0: never
   16   1  flags: 1 a lock, 2 the value is large and stored beside it
   17   8  of a lock only: its fence, the log time of the frame that acquired it
    …      the value, msgpack; of a lock its holder

Invariants:

- Every entry that expires stands in the expiry index under its time. The index may also name what
  is no longer so: whoever follows it looks at the entry.
- An entry expires at its time by the transaction's log time, exactly, whether or not it has been
  swept. Whoever was told that it has expired must not see it come back after a crash under another
  clock: so `lapsed` names what a read passed over, and the asker has that removed
  (`remove_expired`) and answers when the removal is durable. From then on the log itself is past
  the time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol

from protocol import binary, limits
from protocol.errors import NotANumber, NumberTooLarge, TypeRefused
from protocol.spaces import (
    Packed,
    When,
    check_expire,
    check_expires,
    check_holder,
    check_key,
    expected,
    packed,
)
from protocol.values import NONE, NoneValue, Tick, Value, identical, instant, type_name
from storage import keys
from storage.catalog import Space
from storage.effects import SEQUENCE_BYTES
from storage.transactions import Transaction

Answer = dict[str, Any]

_HEAD: Final = struct.Struct(">QQB")
_TAIL: Final = struct.Struct(">QB")
"""An entry's head without the sequence."""
_FENCE: Final = struct.Struct(">Q")
assert _HEAD.size == SEQUENCE_BYTES + _TAIL.size == 17
_LOCK: Final = 1
_LARGE: Final = 2

LAPSED_NOTED: Final = 64
"""Of what one listing, or one transaction of a script, passed over, about. One would do, for its
removal takes the log past the time of all of them, and who paused before that loses where it took
one of them for alive (`Transaction.alive_until_us`); the rest is the sweep's."""


@dataclass(slots=True)
class Entry:
    """A key as it stands, expired or not."""

    sequence: int
    """The commit that wrote it; 0 when only the transaction that asks has made it."""
    expires_us: int
    flags: int
    fence: int
    """Of a lock; 0: that of the transaction that asks, which has no sequence yet."""
    content: bytes


class Held(NamedTuple):
    """A key that has not expired, with its value as it is stored."""

    key: str
    content: bytes
    """Packed."""
    expires_us: int
    """Microseconds since 1970 of log time; 0: never."""


class Readable(Protocol):
    """What entries are read of: a transaction, or the present state."""

    @property
    def now_us(self) -> int:
        """The log time by which keys expire."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key of the store."""


class Entries:
    """The keys of one space as they stand: what one is asked for is read here and nowhere else.

    What a caller has written, `Any` here, is checked here too.
    """

    __slots__ = ("_reader", "_space", "lapsed", "read_bytes")

    def __init__(self, reader: Readable, space: Space) -> None:
        self._reader = reader
        self._space = space
        self.lapsed: list[bytes] = []
        """Keys that were passed over because they have expired; see the head of the file."""
        self.read_bytes = 0
        """Of the values read here, as they are stored."""

    def get(self, key: Any) -> Answer | Any:
        """`{value, ttl}`, or NONE."""
        name = check_key(key).encode()
        found = self._live(name)
        if found is None:
            return NONE
        ttl = self._ttl(found.expires_us) if found.expires_us else None
        return {"value": self._value(name, found), "ttl": ttl}

    def _entry(self, name: bytes) -> Entry | None:
        stored = self._space.entries + name
        value = self._reader.get(stored)
        if value is None:
            return None
        sequence, expires_us, flags = _HEAD.unpack_from(value)
        if not flags & _LOCK:
            return Entry(sequence, expires_us, flags, 0, value[_HEAD.size :])
        (fence,) = _FENCE.unpack_from(value, _HEAD.size)
        return Entry(sequence, expires_us, flags, fence, value[_HEAD.size + _FENCE.size :])

    def _live(self, name: bytes) -> Entry | None:
        return self._unless_lapsed(name, self._entry(name))

    def _unless_lapsed(
        self, name: bytes, found: Entry | None, *, note: bool = True
    ) -> Entry | None:
        if found is None or not 0 < found.expires_us <= self._reader.now_us:
            return found
        if note:
            self.lapsed.append(name)
        return None

    def _value(self, name: bytes, found: Entry) -> Any:
        return binary.unpack(self._stored(name, found))

    def _stored(self, name: bytes, found: Entry) -> bytes:
        """The value of an entry, packed."""
        if found.flags & _LARGE:
            content = self._reader.get(self._space.contents + name)
            assert content is not None, "a large value stands beside its entry"
        else:
            content = found.content
        self.read_bytes += len(content)
        return content

    def _ttl(self, expires_us: int) -> timedelta:
        return timedelta(microseconds=expires_us - self._reader.now_us)


class Keys(Entries):
    """The keys of one space in one transaction.

    :param tick: called now and then while a large value is gone through
    """

    __slots__ = ("_tick", "_tx", "locked", "soonest_us")

    def __init__(self, tx: Transaction, space: Space, tick: Tick | None = None) -> None:
        super().__init__(tx, space)
        self._tx = tx
        self._tick = tick
        self.locked: list[Answer] = []
        """Answers whose fence will be the log time of this transaction's frame."""
        self.soonest_us = 0
        """The earliest expiry written here; 0: none."""

    # --- all of them ----------------------------------------------------------------------------

    def held(self) -> Iterator[Held | None]:
        """The keys that have not expired, but for locks, in the order of their bytes; and None now
        and then, where there may be many others."""
        start = len(self._space.entries)
        for pairs in self._tx.scan(*keys.within(self._space.entries)):
            yield None
            for key, value in pairs:
                _, expires_us, flags = _HEAD.unpack_from(value)
                if flags & _LOCK or 0 < expires_us <= self._tx.now_us:
                    continue
                content = value[_HEAD.size :]
                if flags & _LARGE:
                    large = self._tx.get(self._space.contents + key[start:])
                    assert large is not None, "a large value stands beside its entry"
                    content = large
                yield Held(key[start:].decode(), content, expires_us)

    # --- values ---------------------------------------------------------------------------------

    def set(
        self,
        key: Any,
        value: Value | Packed,
        expire_us: int | None = None,
        *,
        keep: bool = False,
        when: When | None = None,
        expires_us: int | None = None,
    ) -> Answer:
        """`{written}`. :raises TypeRefused, NumberTooLarge, TooLarge: of the value
        :raises ExpireRefused:"""
        name, content = check_key(key).encode(), self._packed(value)
        if expires_us is None:
            expires_us = self._expires(expire_us)
        else:
            expires_us = check_expires(expires_us, self._tx.now_us)
        before = self._entry(name)
        found = self._unless_lapsed(name, before, note=False)
        if when is not None and (found is None) != (when == "ABSENT"):
            self._note(name, before, found)
            return {"written": False}
        if found is not None and (keep or when is not None):
            self._rests_on(name, found)
            if keep:
                expires_us = found.expires_us
        self._put(name, content, expires_us, before)
        return {"written": True}

    def swap(
        self,
        key: Any,
        expect: Value | Packed,
        value: Value | Packed,
        expire_us: int | None = None,
    ) -> Answer:
        """`{written}`. Raises as `set`."""
        name, content = check_key(key).encode(), self._packed(value)
        wanted = expect if isinstance(expect, Packed) else expected(expect, self._tick)
        expires_us = self._expires(expire_us)
        before = self._entry(name)
        found = self._unless_lapsed(name, before, note=False)
        if not self._is(name, found, wanted):
            self._note(name, before, found)
            return {"written": False}
        if found is not None:
            self._rests_on(name, found)
        self._put(name, content, expires_us, before)
        return {"written": True}

    def _packed(self, value: Value | Packed) -> bytes:
        return value.content if isinstance(value, Packed) else packed(value, self._tick).content

    def _is(self, name: bytes, found: Entry | None, wanted: NoneValue | Packed) -> bool:
        """Whether a key holds what is wanted."""
        if found is None or not isinstance(wanted, Packed):
            return found is None and not isinstance(wanted, Packed)
        content = self._stored(name, found)
        if content == wanted.content:
            return True
        if len(content) != len(wanted.content):
            return False
        # The fields of objects may stand in another order.
        return identical(binary.unpack(content), binary.unpack(wanted.content), self._tick)

    def incr(self, key: Any, by: Any = 1) -> Answer:
        """`{value}`: an absent key counts from 0; the expiry of one that is there stays.

        :raises NotANumber: the value is no integer
        :raises NumberTooLarge: the sum leaves 64 bits; TypeRefused: `by` is no integer
        """
        name = check_key(key).encode()
        if type(by) is not int:
            raise TypeRefused(f"BY takes an int, not {type_name(by)}", found=type_name(by))
        before = self._entry(name)
        found = self._unless_lapsed(name, before, note=False)
        if found is None:
            number, expires_us = 0, self._expires(None)
        else:
            present = self._value(name, found)
            if type(present) is not int:
                raise NotANumber(f"{key!r} holds no int", key=key)  # nor what: WRITE is enough
            number, expires_us = present, found.expires_us
            self._rests_on(name, found)
        number += by
        if not limits.INT_MIN <= number <= limits.INT_MAX:
            raise NumberTooLarge(f"the counter {key!r} would leave 64 bits", key=key)
        self._put(name, binary.pack(number), expires_us, before)
        return {"value": number}

    def delete(self, key: Any) -> Answer:
        """`{deleted}`"""
        name = check_key(key).encode()
        found = self._live(name)
        if found is None:
            return {"deleted": False}
        self._remove(name, found)
        return {"deleted": True}

    # --- expiry ---------------------------------------------------------------------------------

    def expire(self, key: Any, expire_us: int) -> Answer:
        """`{found}`. :raises ExpireRefused:"""
        expires_us = self._tx.now_us + check_expire(expire_us)
        return self._expire(key, expires_us)

    def persist(self, key: Any) -> Answer:
        """`{found}`"""
        return self._expire(key, 0)

    def _expire(self, key: str, expires_us: int) -> Answer:
        name = check_key(key).encode()
        found = self._live(name)
        if found is None:
            return {"found": False}
        if found.expires_us != expires_us:
            self._rests_on(name, found)
            self._write(name, found, expires_us)
        return {"found": True}

    # --- locks ----------------------------------------------------------------------------------

    def lock(self, key: Any, holder: Any, expire_us: int, fence: int | None = None) -> Answer:
        """`{held, fence, until}`. What holds the key is another holder, or a plain value. A lock
        that its holder asks for again is extended, and never ends sooner than it would have.

        The fence of a lock that this call acquires is the log time of the frame to come, which
        grows for ever, over restores too: the answer is in `locked` until `settle`.

        :param fence: only a lock held under this one is extended, and none is acquired. Without it
            who has lost a lock prolongs the next one's, if that goes by the same name
        :raises ExpireRefused:
        """
        name = check_key(key).encode()
        content = binary.pack(check_holder(holder))
        expires_us = self._tx.now_us + check_expire(expire_us)
        before = self._entry(name)
        found: Entry | None = self._unless_lapsed(name, before, note=False)
        if fence is not None and found is None:
            self._note(name, before, found)
            return {"held": False, "fence": None, "until": None}
        if found is not None and not _is_held(found, content, fence):
            until = instant(found.expires_us) if found.expires_us else None
            return {"held": False, "fence": None, "until": until}
        if found is not None:
            expires_us = max(expires_us, found.expires_us) if found.expires_us else 0
        until = instant(expires_us) if expires_us else None
        answer: Answer = {"held": True, "fence": None, "until": until}
        if found is not None:
            self._rests_on(name, found)
            self._write(name, found, expires_us)
            answer["fence"] = found.fence or None
        else:
            self._put(name, content, expires_us, before, lock=True)
        if answer["fence"] is None:
            self.locked.append(answer)
        return answer

    def settle(self) -> None:
        """The transaction is committed: say what it gave to the locks that it acquired."""
        for answer in self.locked:
            answer["fence"] = self._tx.time

    def unlock(self, key: Any, holder: Any, fence: int | None = None) -> Answer:
        """`{released}`. Deletes nothing: what is written in the lock's place expires at once, and
        only while the key still names the holder.

        :param fence: as for `lock`
        """
        name = check_key(key).encode()
        content = binary.pack(check_holder(holder))
        found = self._live(name)
        if found is None or not _is_held(found, content, fence):
            return {"released": False}
        self._put(name, _NOTHING, self._tx.now_us, found)
        return {"released": True}

    def written_here(self, key: Any) -> bool:
        """Whether this transaction has written the key. A second lock in one commit would have
        the fence of the first."""
        written = self._space.entries + key.encode("utf-8", "surrogatepass")
        return written in self._tx.own.writes

    # --- many -----------------------------------------------------------------------------------

    def listing(self, prefix: str, after: str, limit: int) -> Iterator[list[str]]:
        """Keys in order, in parts, some of them empty: between two of them others may have their
        turn."""
        entries, now_us = self._space.entries, self._tx.now_us
        start, end = keys.within(entries + prefix.encode())
        if after:
            start = max(start, entries + after.encode() + b"\0")
        at, left = len(entries), limit
        for pairs in self._tx.scan(start, end) if limit else ():
            part: list[str] = []
            for stored, value in pairs:
                expires_us = _HEAD.unpack_from(value)[1]
                if expires_us and expires_us <= now_us:
                    if len(self.lapsed) < LAPSED_NOTED:
                        self.lapsed.append(stored[at:])
                    continue
                part.append(stored[at:].decode())
                left -= 1
                if not left:
                    yield part
                    return
            yield part

    def drop(self, prefix: str) -> Iterator[int]:
        """Remove every key that begins with `prefix`: how many there were, in parts."""
        tx, space = self._tx, self._space
        start, end = keys.within(space.entries + prefix.encode())
        stored = 0
        for pairs in tx.scan(start, end):
            stored += len(pairs)
            yield sum(
                not 0 < expires_us <= tx.now_us
                for _, expires_us, _ in (_HEAD.unpack_from(value) for _, value in pairs)
            )
        if stored:
            tx.delete_range(start, end)
            tx.delete_range(*keys.within(space.contents + prefix.encode()))
            tx.add(space.count_key, -stored)

    def count(self) -> Iterator[int]:
        """How many keys there are, as parts to be added up. One of those that have expired is
        noted as passed over."""
        yield keys.unpack_counter(self._tx.get(self._space.count_key))
        for pairs in self._tx.scan(*self._due()):
            due = [index for index, _ in pairs if self._is_due(index) is not None]
            if due and not self.lapsed:
                self.lapsed.append(due[0][keys.EXPIRY_KEY_AT :])
            yield -len(due)

    # --- sweeping -------------------------------------------------------------------------------

    def sweep(self, most: int, begin: bytes = b"") -> tuple[int, bytes]:
        """Remove up to so many expired keys; how many places of the expiry index were looked at,
        and which was the last. One that was written again since is only taken off the index.

        :param begin: where in the index to begin. What a sweep has removed stays in the engine as a
            tombstone for a while: a million of them take 35 ms to pass over
        """
        done, last = 0, begin
        start, end = self._due()
        for pairs in self._tx.scan(max(start, begin), end):
            for index, _ in pairs:
                last = index
                found = self._is_due(index)
                if found is None:
                    self._tx.delete(index)
                else:
                    self._remove(index[keys.EXPIRY_KEY_AT :], found)
                done += 1
                if done >= most:
                    return done, last
        return done, last

    def next_expiry_us(self, begin: bytes = b"") -> int | None:
        """When the next key expires, or should have; None when none will. :param begin: as above"""
        start, end = keys.within(self._space.expiries)
        for pairs in self._tx.scan(max(start, begin), end):
            return keys.expiry_time(pairs[0][0])
        return None

    def remove_expired(self, names: list[bytes]) -> None:
        """Remove keys that were passed over, if they have still expired."""
        for name in names:
            found = self._entry(name)
            if found is not None and 0 < found.expires_us <= self._tx.now_us:
                self._remove(name, found)

    def count_due(self) -> int:
        """How many keys have expired and are still there."""
        found = self._tx.scan(*self._due())
        return sum(self._is_due(index) is not None for pairs in found for index, _ in pairs)

    def _due(self) -> keys.Range:
        space = self._space
        return space.expiries, keys.expiry(space.expiries, self._tx.now_us + 1)

    def _is_due(self, index: bytes) -> Entry | None:
        """The entry that a place of the expiry index means; None when it has another expiry."""
        found = self._entry(index[keys.EXPIRY_KEY_AT :])
        if found is None or found.expires_us != keys.expiry_time(index):
            return None
        return found

    # --- entries --------------------------------------------------------------------------------

    def _note(self, name: bytes, before: Entry | None, found: Entry | None) -> None:
        """Nothing is written over what had expired."""
        if before is not None and found is None:
            self.lapsed.append(name)

    def _expires(self, expire_us: int | None) -> int:
        """When a key that is written now expires; 0: never."""
        if expire_us is not None:
            return self._tx.now_us + check_expire(expire_us)
        default_us = self._space.expire_us
        return self._tx.now_us + default_us if default_us is not None else 0

    def _put(
        self,
        name: bytes,
        content: bytes,
        expires_us: int,
        before: Entry | None,
        *,
        lock: bool = False,
    ) -> None:
        """Write an entry anew over what is stored, expired or not."""
        tx, space = self._tx, self._space
        flags = _LOCK if lock else 0
        if len(content) > limits.CACHE_INLINE_BYTES:
            flags |= _LARGE
            tx.put(space.contents + name, content)
            content = b""
        elif before is not None and before.flags & _LARGE:
            tx.delete(space.contents + name)
        head = _TAIL.pack(expires_us, flags)
        if lock:
            head += _FENCE.pack(0)
            tx.put_time(space.entries + name, _fenced)
        self._store(name, head + content, expires_us, before)
        if before is None:
            tx.add(space.count_key, 1)

    def _rests_on(self, name: bytes, found: Entry) -> None:
        """What is written rests on the key's being there: see `Transaction.alive_until_us`. Of what
        only this transaction has written nobody was told anything."""
        at_us, tx = found.expires_us, self._tx
        if not at_us or self._space.entries + name in tx.own.writes:
            return
        if not tx.alive_until_us or at_us < tx.alive_until_us:
            tx.alive_until_us = at_us

    def _write(self, name: bytes, found: Entry, expires_us: int) -> None:
        """Give an entry another expiry."""
        head = _TAIL.pack(expires_us, found.flags)
        if found.flags & _LOCK:
            head += _FENCE.pack(found.fence)
        self._store(name, head + found.content, expires_us, found)

    def _store(self, name: bytes, value: bytes, expires_us: int, before: Entry | None) -> None:
        tx, expiries = self._tx, self._space.expiries
        tx.put_record(self._space.entries + name, value, before.sequence if before else 0)
        if expires_us and (not self.soonest_us or expires_us < self.soonest_us):
            self.soonest_us = expires_us
        old_us = before.expires_us if before is not None else 0
        if old_us != expires_us:
            if old_us:
                tx.delete(keys.expiry(expiries, old_us, name))
            if expires_us:
                tx.put(keys.expiry(expiries, expires_us, name), b"")

    def _remove(self, name: bytes, found: Entry) -> None:
        tx, space = self._tx, self._space
        tx.delete_record(space.entries + name, found.sequence)
        if found.flags & _LARGE:
            tx.delete(space.contents + name)
        if found.expires_us:
            tx.delete(keys.expiry(space.expiries, found.expires_us, name))
        tx.add(space.count_key, -1)


def _fenced(value: bytes, time: int) -> bytes:
    """An entry as its transaction has left it: a lock that was acquired in it has its fence now."""
    _, _, flags = _HEAD.unpack_from(value)
    if not flags & _LOCK or _FENCE.unpack_from(value, _HEAD.size) != (0,):
        return value  # something else has been written over it
    return value[: _HEAD.size] + _FENCE.pack(time) + value[_HEAD.size + _FENCE.size :]


def _is_held(found: Entry, content: bytes, fence: int | None) -> bool:
    """Whether an entry is the lock of a holder. :param content: the holder, packed"""
    is_theirs = bool(found.flags & _LOCK) and found.content == content
    return is_theirs and fence in (None, found.fence)


_NOTHING: Final = binary.pack(None)
