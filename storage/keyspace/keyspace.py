"""Cache keys: get, set, compare-and-swap, counters, locks with fencing tokens, expiry, sweeps.

An entry is stamped like a record, and its value is:

    0   8  sequence of the commit that wrote it
    8   8  expiry, microseconds since 1970 of log time; 0: never
   16   1  flags: 1 a lock, 2 the value is large and stored beside it
   17   8  of a lock only: its fencing token, the log time of the frame that acquired it
    …      the value, msgpack; of a lock its holder

Invariants:

- Every entry that expires is in the expiry index under its time. The index may also contain stale
  times, so its readers check the entry.
- An entry expires exactly at its time by the transaction's log time, swept or not. Once a client
  has been answered that a key has expired, it must not reappear after a crash under another clock.
  So `lapsed` collects the expired keys that reads passed over. The caller has them removed
  (`remove_expired`), and responds when the removal is durable. From then on the log itself is past
  that time.
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
from storage.catalog.spaces import Space
from storage.formats import keys
from storage.formats.keys import SEQUENCE_BYTES
from storage.txn.transaction import Transaction

Answer = dict[str, Any]

_HEAD: Final = struct.Struct(">QQB")
_TAIL: Final = struct.Struct(">QB")
"""Head of an entry without the sequence."""
_FENCE: Final = struct.Struct(">Q")
assert _HEAD.size == SEQUENCE_BYTES + _TAIL.size == 17
_LOCK: Final = 1
_LARGE: Final = 2

EXPIRED_NOTED: Final = 64
"""Approximate maximum of expired keys noted by one listing, or one transaction of a script.

One would suffice. Its removal moves log time past the expiry of all the others; a transaction that
paused earlier and took one of them for alive then conflicts (`Transaction.alive_until_us`). The
sweep removes the rest.
"""


@dataclass(slots=True)
class KeyEntry:
    """Entry of a key, expired or not."""

    sequence: int
    """Sequence of the commit that wrote it; 0 if only the current transaction has."""
    expires_us: int
    flags: int
    fence: int
    """Fencing token of a lock; 0: acquired by the current transaction, which has no log time yet.
    """
    content: bytes


class LiveKey(NamedTuple):
    """Live key with its stored value."""

    key: str
    content: bytes
    """Packed value."""
    expires_us: int
    """Expiry, microseconds since 1970 of log time; 0: never."""


class Readable(Protocol):
    """Source of entries: a transaction, or the present state."""

    @property
    def now_us(self) -> int:
        """Log time (µs) by which keys expire."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key of the state."""


class SpaceReader:
    """Read access to the keys of one space, with expiry by log time.

    Parameters of type `Any` are the caller's unchecked input, and are validated here.
    """

    __slots__ = ("_reader", "_space", "lapsed", "read_bytes")

    def __init__(self, reader: Readable, space: Space) -> None:
        self._reader = reader
        self._space = space
        self.lapsed: list[bytes] = []
        """Expired keys that reads passed over; see the module head."""
        self.read_bytes = 0
        """Bytes of the stored values read so far."""

    def get(self, key: Any) -> Answer | Any:
        """Return `{value, ttl}`, or NONE."""
        name = check_key(key).encode()
        found = self._live(name)
        if found is None:
            return NONE
        ttl = self._ttl(found.expires_us) if found.expires_us else None
        return {"value": self._value(name, found), "ttl": ttl}

    def _entry(self, name: bytes) -> KeyEntry | None:
        stored = self._space.entries + name
        value = self._reader.get(stored)
        if value is None:
            return None
        sequence, expires_us, flags = _HEAD.unpack_from(value)
        if not flags & _LOCK:
            return KeyEntry(sequence, expires_us, flags, 0, value[_HEAD.size :])
        (fence,) = _FENCE.unpack_from(value, _HEAD.size)
        return KeyEntry(sequence, expires_us, flags, fence, value[_HEAD.size + _FENCE.size :])

    def _live(self, name: bytes) -> KeyEntry | None:
        return self._unless_expired(name, self._entry(name))

    def _unless_expired(
        self, name: bytes, found: KeyEntry | None, *, note: bool = True
    ) -> KeyEntry | None:
        if found is None or not 0 < found.expires_us <= self._reader.now_us:
            return found
        # The caller removes the key and answers after that: the module head says why.
        if note:
            self.lapsed.append(name)
        return None

    def _value(self, name: bytes, found: KeyEntry) -> Any:
        return binary.unpack(self._stored(name, found))

    def _stored(self, name: bytes, found: KeyEntry) -> bytes:
        """Return the packed value of an entry."""
        if found.flags & _LARGE:
            # Both rows are written and deleted by the same commit, and read from one state.
            content = self._reader.get(self._space.contents + name)
            assert content is not None, "a large value stands beside its entry"
        else:
            content = found.content
        self.read_bytes += len(content)
        return content

    def _ttl(self, expires_us: int) -> timedelta:
        return timedelta(microseconds=expires_us - self._reader.now_us)


class SpaceKeys(SpaceReader):
    """Keys of one space in one transaction.

    :param tick: called from time to time while a large value is processed
    """

    __slots__ = ("_tick", "_tx", "locked", "soonest_us")

    def __init__(self, tx: Transaction, space: Space, tick: Tick | None = None) -> None:
        super().__init__(tx, space)
        self._tx = tx
        self._tick = tick
        self.locked: list[Answer] = []
        """Responses whose fence will be the log time of this transaction's frame."""
        self.soonest_us = 0
        """Earliest expiry written here (µs); 0: none."""

    # --- all of them ----------------------------------------------------------------------------

    def held(self) -> Iterator[LiveKey | None]:
        """Yield the live keys, except locks, in byte order.

        Yields None from time to time, since many skipped keys may lie between.
        """
        start = len(self._space.entries)
        for pairs in self._tx.scan(*keys.within(self._space.entries)):
            # Before each part, also one of locks and expired keys alone: a point to pause.
            yield None
            for key, value in pairs:
                _, expires_us, flags = _HEAD.unpack_from(value)
                # A script can't set the fencing token of a lock, so it leaves locks out.
                if flags & _LOCK or 0 < expires_us <= self._tx.now_us:
                    continue
                content = value[_HEAD.size :]
                if flags & _LARGE:
                    large = self._tx.get(self._space.contents + key[start:])
                    assert large is not None, "a large value stands beside its entry"
                    content = large
                yield LiveKey(key[start:].decode(), content, expires_us)

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
        """Set a key. Return `{written}`.

        :raises TypeRefused, NumberTooLarge, TooLarge: the value is invalid
        :raises ExpireRefused: the expiry is invalid
        """
        name, content = check_key(key).encode(), self._packed(value)
        if expires_us is None:
            expires_us = self._expires(expire_us)
        else:
            expires_us = check_expires(expires_us, self._tx.now_us)
        before = self._entry(name)
        # Not noted yet: if this write replaces the expired entry, the key needs no removal.
        found = self._unless_expired(name, before, note=False)
        if when is not None and (found is None) != (when == "ABSENT"):
            self._note(name, before, found)
            return {"written": False}
        # A plain SET gives the same result for a live and for an expired key.
        if found is not None and (keep or when is not None):
            self._depend_on_key(name, found)
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
        """Set a key if it has the expected value (compare and swap). Return `{written}`.

        :raises: as `set`
        """
        name, content = check_key(key).encode(), self._packed(value)
        wanted = expect if isinstance(expect, Packed) else expected(expect, self._tick)
        expires_us = self._expires(expire_us)
        before = self._entry(name)
        found = self._unless_expired(name, before, note=False)
        # The refusal may show that the key is gone, so an expired one has to be removed first.
        if not self._is(name, found, wanted):
            self._note(name, before, found)
            return {"written": False}
        if found is not None:
            self._depend_on_key(name, found)
        self._put(name, content, expires_us, before)
        return {"written": True}

    def _packed(self, value: Value | Packed) -> bytes:
        return value.content if isinstance(value, Packed) else packed(value, self._tick).content

    def _is(self, name: bytes, found: KeyEntry | None, wanted: NoneValue | Packed) -> bool:
        """True if a key has the expected value."""
        if found is None or not isinstance(wanted, Packed):
            return found is None and not isinstance(wanted, Packed)
        content = self._stored(name, found)
        if content == wanted.content:
            return True
        # The order of fields leaves the packed length as it is.
        if len(content) != len(wanted.content):
            return False
        # Objects with their fields in another order are equal.
        return identical(binary.unpack(content), binary.unpack(wanted.content), self._tick)

    def incr(self, key: Any, by: Any = 1) -> Answer:
        """Increment a counter. Return `{value}`.

        An absent key counts from 0; an existing one keeps its expiry.

        :raises NotANumber: the value is no integer
        :raises NumberTooLarge: the sum exceeds 64 bits
        :raises TypeRefused: `by` is no integer
        """
        name = check_key(key).encode()
        if type(by) is not int:
            raise TypeRefused(f"BY takes an int, not {type_name(by)}", found=type_name(by))
        before = self._entry(name)
        found = self._unless_expired(name, before, note=False)
        if found is None:
            # An expired counter restarts, and takes the default expiry of its space.
            number, expires_us = 0, self._expires(None)
        else:
            present = self._value(name, found)
            if type(present) is not int:
                # Don't report the value: the caller may have WRITE without READ.
                raise NotANumber(f"the value of {key!r} is not an int", key=key)
            number, expires_us = present, found.expires_us
            self._depend_on_key(name, found)
        number += by
        if not limits.INT_MIN <= number <= limits.INT_MAX:
            raise NumberTooLarge(f"the counter {key!r} would exceed 64 bits", key=key)
        self._put(name, binary.pack(number), expires_us, before)
        return {"value": number}

    def delete(self, key: Any) -> Answer:
        """Delete a key. Return `{deleted}`."""
        name = check_key(key).encode()
        found = self._live(name)
        if found is None:
            return {"deleted": False}
        self._remove(name, found)
        return {"deleted": True}

    # --- expiry ---------------------------------------------------------------------------------

    def expire(self, key: Any, expire_us: int) -> Answer:
        """Set the expiry of a key. Return `{found}`.

        :raises ExpireRefused:
        """
        expires_us = self._tx.now_us + check_expire(expire_us)
        return self._expire(key, expires_us)

    def persist(self, key: Any) -> Answer:
        """Remove the expiry of a key. Return `{found}`."""
        return self._expire(key, 0)

    def _expire(self, key: str, expires_us: int) -> Answer:
        name = check_key(key).encode()
        found = self._live(name)
        if found is None:
            return {"found": False}
        if found.expires_us != expires_us:
            self._depend_on_key(name, found)
            self._write(name, found, expires_us)
        return {"found": True}

    # --- locks ----------------------------------------------------------------------------------

    def lock(self, key: Any, holder: Any, expire_us: int, fence: int | None = None) -> Answer:
        """Acquire or extend a lock. Return `{held, fence, until}`.

        The lock is refused if another holder, or a plain value, has the key. If its holder asks
        again, the lock is extended, never shortened.

        The fencing token of an acquired lock is the log time of the coming frame, which only grows,
        also across restores. The response is in `locked` until `fill_fences` fills it in.

        :param fence: extend only a lock held under this fence, and acquire none. Without it, a
            client that has lost its lock could extend the next one of the same holder name
        :raises ExpireRefused:
        """
        name = check_key(key).encode()
        content = binary.pack(check_holder(holder))
        expires_us = self._tx.now_us + check_expire(expire_us)
        before = self._entry(name)
        found: KeyEntry | None = self._unless_expired(name, before, note=False)
        # A client that names a fence has lost its lease here; it must not acquire a second one.
        if fence is not None and found is None:
            self._note(name, before, found)
            return {"held": False, "fence": None, "until": None}
        if found is not None and not _is_held(found, content, fence):
            until = instant(found.expires_us) if found.expires_us else None
            return {"held": False, "fence": None, "until": until}
        if found is not None:
            # Never shorter. A lock without expiry, after a PERSIST, stays without one.
            expires_us = max(expires_us, found.expires_us) if found.expires_us else 0
        until = instant(expires_us) if expires_us else None
        answer: Answer = {"held": True, "fence": None, "until": until}
        if found is not None:
            self._depend_on_key(name, found)
            self._write(name, found, expires_us)
            # 0: acquired by this very transaction, so the fence is known at its commit.
            answer["fence"] = found.fence or None
        else:
            self._put(name, content, expires_us, before, lock=True)
        if answer["fence"] is None:
            self.locked.append(answer)
        return answer

    def fill_fences(self) -> None:
        """Fill in the fences of the acquired locks after the commit."""
        for answer in self.locked:
            answer["fence"] = self._tx.time

    def unlock(self, key: Any, holder: Any, fence: int | None = None) -> Answer:
        """Release a lock. Return `{released}`.

        Replaces the lock by an entry that expires at once, and only while the holder has it.
        Deletes nothing.

        :param fence: as for `lock`
        """
        name = check_key(key).encode()
        content = binary.pack(check_holder(holder))
        found = self._live(name)
        if found is None or not _is_held(found, content, fence):
            return {"released": False}
        # No dependency on a live lock: the new entry is expired for every reader from the start.
        self._put(name, _NOTHING, self._tx.now_us, found)
        return {"released": True}

    def written_here(self, key: Any) -> bool:
        """True if this transaction has written the key.

        A second lock in one commit would get the fence of the first.
        """
        written = self._space.entries + key.encode("utf-8", "surrogatepass")
        return written in self._tx.own.writes

    # --- many -----------------------------------------------------------------------------------

    def listing(self, prefix: str, after: str, limit: int) -> Iterator[list[str]]:
        """Yield keys in order, in parts, some of them empty. The caller may yield control between
        parts."""
        entries, now_us = self._space.entries, self._tx.now_us
        start, end = keys.within(entries + prefix.encode())
        if after:
            # The smallest key behind `after`, since keys hold no NUL.
            start = max(start, entries + after.encode() + b"\0")
        at, left = len(entries), limit
        for pairs in self._tx.scan(start, end) if limit else ():
            part: list[str] = []
            for stored, value in pairs:
                expires_us = _HEAD.unpack_from(value)[1]
                if expires_us and expires_us <= now_us:
                    # Bounds the removal that the answer waits for.
                    if len(self.lapsed) < EXPIRED_NOTED:
                        self.lapsed.append(stored[at:])
                    continue
                part.append(stored[at:].decode())
                left -= 1
                if not left:
                    yield part
                    return
            yield part

    def drop(self, prefix: str) -> Iterator[int]:
        """Remove all keys with a prefix. Yields the numbers removed, to be added up."""
        tx, space = self._tx, self._space
        start, end = keys.within(space.entries + prefix.encode())
        stored = 0
        for pairs in tx.scan(start, end):
            stored += len(pairs)
            yield sum(
                not 0 < expires_us <= tx.now_us
                for _, expires_us, _ in (_HEAD.unpack_from(value) for _, value in pairs)
            )
        # The expiry index is ordered by time, so its entries stay, stale, until the sweep.
        # The counter counts expired entries too, so all of them are subtracted.
        if stored:
            tx.delete_range(start, end)
            tx.delete_range(*keys.within(space.contents + prefix.encode()))
            tx.add(space.count_key, -stored)

    def count(self) -> Iterator[int]:
        """Count the live keys. Yields numbers to be added up.

        Notes one of the expired keys in `lapsed`.
        """
        # The counter has every stored entry, so expired ones are subtracted below.
        yield keys.unpack_counter(self._tx.get(self._space.count_key))
        for pairs in self._tx.scan(*self._due()):
            due = [index for index, _ in pairs if self._is_due(index) is not None]
            if due and not self.lapsed:
                self.lapsed.append(due[0][keys.EXPIRY_KEY_AT :])
            yield -len(due)

    # --- sweeping -------------------------------------------------------------------------------

    def sweep(self, most: int, begin: bytes = b"") -> tuple[int, bytes]:
        """Remove up to `most` expired keys.

        An index entry of a key that was rewritten since is just deleted.

        Return the number of index entries processed, and the last of them.

        :param begin: index key to begin at. Earlier sweeps leave tombstones in the engine for a
            while: a million of them take 35 ms to skip
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
                # Stale entries count too: `most` bounds the changes of one commit.
                if done >= most:
                    return done, last
        return done, last

    def next_expiry_us(self, begin: bytes = b"") -> int | None:
        """Return the next expiry, also if it has passed; None if no key expires.

        :param begin: as in `sweep`
        """
        start, end = keys.within(self._space.expiries)
        for pairs in self._tx.scan(max(start, begin), end):
            return keys.expiry_time(pairs[0][0])
        return None

    def remove_expired(self, names: list[bytes]) -> None:
        """Remove those of the given keys that are still expired."""
        for name in names:
            found = self._entry(name)
            # Another commit may have set the key again since the read that noted it.
            if found is not None and 0 < found.expires_us <= self._tx.now_us:
                self._remove(name, found)

    def count_due(self) -> int:
        """Return the number of expired keys that are not removed yet."""
        found = self._tx.scan(*self._due())
        return sum(self._is_due(index) is not None for pairs in found for index, _ in pairs)

    def _due(self) -> keys.Range:
        space = self._space
        # The end is exclusive, and a key expires at its time: hence + 1.
        return space.expiries, keys.expiry(space.expiries, self._tx.now_us + 1)

    def _is_due(self, index: bytes) -> KeyEntry | None:
        """Return the entry of an expiry index key; None if it has another expiry."""
        found = self._entry(index[keys.EXPIRY_KEY_AT :])
        if found is None or found.expires_us != keys.expiry_time(index):
            return None
        return found

    # --- entries --------------------------------------------------------------------------------

    def _note(self, name: bytes, before: KeyEntry | None, found: KeyEntry | None) -> None:
        """Note an expired key that was not overwritten."""
        if before is not None and found is None:
            self.lapsed.append(name)

    def _expires(self, expire_us: int | None) -> int:
        """Return the expiry of a key written now; 0: never."""
        if expire_us is not None:
            return self._tx.now_us + check_expire(expire_us)
        default_us = self._space.expire_us
        return self._tx.now_us + default_us if default_us is not None else 0

    def _put(
        self,
        name: bytes,
        content: bytes,
        expires_us: int,
        before: KeyEntry | None,
        *,
        lock: bool = False,
    ) -> None:
        """Replace an entry, expired or not."""
        tx, space = self._tx, self._space
        flags = _LOCK if lock else 0
        if len(content) > limits.CACHE_INLINE_BYTES:
            flags |= _LARGE
            tx.put(space.contents + name, content)
            content = b""
        # The new value is inline, so the old row beside the entry would be left over.
        elif before is not None and before.flags & _LARGE:
            tx.delete(space.contents + name)
        head = _TAIL.pack(expires_us, flags)
        if lock:
            # A placeholder: the commit puts in its log time (`_fenced`).
            head += _FENCE.pack(0)
            tx.put_time(space.entries + name, _fenced)
        self._store(name, head + content, expires_us, before)
        # An expired entry that is replaced was counted already.
        if before is None:
            tx.add(space.count_key, 1)

    def _depend_on_key(self, name: bytes, found: KeyEntry) -> None:
        """Make the write depend on the key being alive, see `Transaction.alive_until_us`.

        A key that only this transaction has written is exempt: no client has seen it.
        """
        at_us, tx = found.expires_us, self._tx
        if not at_us or self._space.entries + name in tx.own.writes:
            return
        # The earliest expiry decides; the ledger compares it with log time at the commit.
        if not tx.alive_until_us or at_us < tx.alive_until_us:
            tx.alive_until_us = at_us

    def _write(self, name: bytes, found: KeyEntry, expires_us: int) -> None:
        """Give an entry another expiry."""
        head = _TAIL.pack(expires_us, found.flags)
        if found.flags & _LOCK:
            head += _FENCE.pack(found.fence)
        self._store(name, head + found.content, expires_us, found)

    def _store(self, name: bytes, value: bytes, expires_us: int, before: KeyEntry | None) -> None:
        tx, expiries = self._tx, self._space.expiries
        tx.put_record(self._space.entries + name, value, before.sequence if before else 0)
        if expires_us and (not self.soonest_us or expires_us < self.soonest_us):
            self.soonest_us = expires_us
        old_us = before.expires_us if before is not None else 0
        # A stale time costs the sweep a look; a missing one would keep the key stored for ever.
        if old_us != expires_us:
            if old_us:
                tx.delete(keys.expiry(expiries, old_us, name))
            if expires_us:
                tx.put(keys.expiry(expiries, expires_us, name), b"")

    def _remove(self, name: bytes, found: KeyEntry) -> None:
        tx, space = self._tx, self._space
        tx.delete_record(space.entries + name, found.sequence)
        if found.flags & _LARGE:
            tx.delete(space.contents + name)
        if found.expires_us:
            tx.delete(keys.expiry(space.expiries, found.expires_us, name))
        tx.add(space.count_key, -1)


def _fenced(value: bytes, time: int) -> bytes:
    """Return an entry with its fence filled in, if it is a lock acquired by this transaction."""
    _, _, flags = _HEAD.unpack_from(value)
    if not flags & _LOCK or _FENCE.unpack_from(value, _HEAD.size) != (0,):
        return value  # the lock was overwritten in the same transaction
    return value[: _HEAD.size] + _FENCE.pack(time) + value[_HEAD.size + _FENCE.size :]


def _is_held(found: KeyEntry, content: bytes, fence: int | None) -> bool:
    """True if an entry is a lock of the holder.

    :param content: the holder, packed
    """
    is_theirs = bool(found.flags & _LOCK) and found.content == content
    return is_theirs and fence in (None, found.fence)


_NOTHING: Final = binary.pack(None)
