"""The rules of cache keys, on a manual clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from protocol import limits
from protocol.errors import (
    BadRequest,
    ExpireRefused,
    NotANumber,
    NumberTooLarge,
    Refusal,
    TooLarge,
    TypeRefused,
)
from protocol.values import NONE, RecordId, unpaced
from storage.catalog import places, spaces
from storage.catalog.places import IfExists
from storage.formats import keys
from storage.formats.positions import LogEnd
from storage.indexes import derived
from storage.keyspace.keyspace import SpaceKeys, SpaceReader
from storage.txn.latest import LatestState
from storage.txn.ledger import Ledger
from tests.simulation.environment import START_US, ManualClock, SeededRng
from tests.storage.books import BY, Book

SECOND = 1_000_000
TYPES: list[Any] = [
    None, True, 0, -(2**63), 1.5, Decimal("12.30"), "naïve ☃", b"\0\xff", timedelta(minutes=5),
    datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC), RecordId("person", ["a", 1]),
    [1, [Decimal("1.0")]], {"a": {"b c": 1}},
]  # fmt: skip


class Shelf:
    """A book with one space in it; every call is a transaction."""

    def __init__(self, expire_us: int | None = None) -> None:
        self.book = Book()
        with self.book.begin_transaction() as tx:
            namespace = places.define_namespace(tx, "shop")
            database = places.define_database(tx, namespace, "main")
            self.space = spaces.define_space(tx, database, "c", expire_us=expire_us)
            self.book.commit(tx)
        self.lapsed: list[bytes] = []

    def do(self, work: Callable[[SpaceKeys], Any]) -> Any:
        """What the work on the keys answers, committed."""
        with self.book.begin_transaction() as tx:
            here = SpaceKeys(tx, self.space)
            answer = work(here)
            if tx.size:
                self.book.commit(tx)
                here.fill_fences()
            self.lapsed = here.lapsed
        return answer

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """What a method of the keys answers, committed."""
        return self.do(lambda here: getattr(here, method)(*arguments, **named))

    def get(self, key: str) -> Any:
        found = self.do(lambda here: here.get(key))
        return NONE if found is NONE else found["value"]

    def keys(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[str]:
        found: list[str] = self.do(
            lambda here: [key for part in here.listing(prefix, after, limit) for key in part]
        )
        return found

    def count(self) -> int:
        return self.do(lambda here: sum(here.count()))  # type: ignore[no-any-return]

    def sweep(self, most: int = 100) -> int:
        return self.do(lambda here: here.sweep(most)[0])  # type: ignore[no-any-return]

    def stored(self) -> dict[str, int]:
        """How many keys of each tag the state holds, counters apart."""
        with self.book.begin_transaction() as tx:
            return {
                name: sum(len(step) for step in tx.scan(*keys.within(prefix)))
                for name, prefix in (
                    ("entries", self.space.entries),
                    ("contents", self.space.contents),
                    ("expiries", self.space.expiries),
                )
            }


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def present(shelf: Shelf, key: str) -> tuple[Any, int, list[bytes]]:
    """What is read of a key without a transaction, what it saw in flight, and what had expired: it
    is what a transaction would say."""
    now = LatestState(shelf.book.ledger)
    here = SpaceReader(now, shelf.space)
    found = here.get(key)
    with shelf.book.ledger.begin_transaction() as tx:
        keys = SpaceKeys(tx, shelf.space)
        assert found == keys.get(key)
        assert (now.saw, here.lapsed, here.read_bytes) == (tx.saw, keys.lapsed, keys.read_bytes)
    return found, now.saw, here.lapsed


@pytest.mark.parametrize("value", TYPES, ids=lambda value: type(value).__name__)
def test_what_is_there_is_read_without_a_transaction(shelf: Shelf, value: Any) -> None:
    shelf.call("set", "k", value)
    shelf.call("set", "m", value, 9 * SECOND)
    shelf.book.durable()
    assert present(shelf, "k") == ({"value": value, "ttl": None}, 0, [])
    assert present(shelf, "m") == ({"value": value, "ttl": timedelta(seconds=9)}, 0, [])
    assert present(shelf, "absent") == (NONE, 0, [])
    for refused in ("", "x" * (limits.KEY_BYTES + 1), "nul\0"):
        with pytest.raises(BadRequest):
            present(shelf, refused)


def test_what_is_in_flight_is_seen_without_a_transaction(shelf: Shelf) -> None:
    shelf.book.durable()
    shelf.call("set", "k", 1)
    at = shelf.book.ledger.state.committed
    assert present(shelf, "k") == ({"value": 1, "ttl": None}, at, [])
    assert present(shelf, "other") == (NONE, 0, [])
    shelf.book.durable()
    assert present(shelf, "k") == ({"value": 1, "ttl": None}, 0, [])
    shelf.call("delete", "k")
    assert present(shelf, "k") == (NONE, at + 1, [])
    shelf.book.durable()
    shelf.call("set", "k", 2)
    shelf.do(lambda here: sum(here.drop("")))
    assert present(shelf, "k")[:2] == (NONE, at + 3)


@pytest.mark.parametrize("value", TYPES, ids=lambda value: type(value).__name__)
def test_every_type_comes_back(shelf: Shelf, value: Any) -> None:
    assert shelf.do(lambda here: here.set("k", value)) == {"written": True}
    found = shelf.do(lambda here: here.get("k"))
    assert found == {"value": value, "ttl": None}
    assert type(found["value"]) is type(value)
    assert str(found["value"]) == str(value)


def test_what_is_none_in_an_object_is_absent_and_none_alone_is_no_value(shelf: Shelf) -> None:
    shelf.do(lambda here: here.set("k", {"a": NONE, "b": [NONE, {"c": NONE}]}))
    assert shelf.get("k") == {"b": [NONE, {}]}
    with pytest.raises(TypeRefused):
        shelf.do(lambda here: here.set("k", NONE))


def test_set_conditions(shelf: Shelf) -> None:
    written = {"written": True}
    assert shelf.do(lambda here: here.set("k", 1, when="PRESENT")) == {"written": False}
    assert shelf.get("k") is NONE
    assert shelf.do(lambda here: here.set("k", 1, when="ABSENT")) == written
    assert shelf.do(lambda here: here.set("k", 2, when="ABSENT")) == {"written": False}
    assert shelf.get("k") == 1
    assert shelf.do(lambda here: here.set("k", 3, when="PRESENT")) == written
    assert shelf.get("k") == 3


def test_a_plain_set_clears_an_expiry_and_keep_keeps_it(shelf: Shelf) -> None:
    shelf.do(lambda here: here.set("k", 1, 5 * SECOND))
    shelf.do(lambda here: here.set("k", 2, keep=True))
    assert shelf.do(lambda here: here.get("k"))["ttl"] == timedelta(seconds=5)
    shelf.do(lambda here: here.set("k", 3))
    assert shelf.do(lambda here: here.get("k"))["ttl"] is None
    assert shelf.stored() == {"entries": 1, "contents": 0, "expiries": 0}


def test_expiry_is_exact_to_the_microsecond(shelf: Shelf) -> None:
    shelf.do(lambda here: here.set("k", 1, SECOND))
    shelf.book.clock.advance(SECOND - 1)
    assert shelf.do(lambda here: here.get("k")) == {"value": 1, "ttl": timedelta(microseconds=1)}
    assert shelf.keys() == ["k"]
    shelf.book.clock.advance(1)
    assert shelf.get("k") is NONE
    assert shelf.keys() == []
    assert shelf.count() == 0
    assert shelf.stored()["entries"] == 1, "not swept yet"


@pytest.mark.parametrize(
    ("work", "answer"),
    [
        (lambda here: here.set("k", 2, when="PRESENT"), {"written": False}),
        (lambda here: here.set("k", 2, when="ABSENT"), {"written": True}),
        (lambda here: here.swap("k", 1, 2), {"written": False}),
        (lambda here: here.swap("k", NONE, 2), {"written": True}),
        (lambda here: here.incr("k"), {"value": 1}),
        (lambda here: here.delete("k"), {"deleted": False}),
        (lambda here: here.expire("k", SECOND), {"found": False}),
        (lambda here: here.persist("k"), {"found": False}),
        (lambda here: here.unlock("k", "h"), {"released": False}),
    ],
)  # fmt: skip
def test_what_has_expired_is_not_there_for_anything(
    shelf: Shelf, work: Callable[[SpaceKeys], Any], answer: dict[str, Any]
) -> None:
    shelf.do(lambda here: here.set("k", 1, SECOND))
    shelf.book.clock.advance(SECOND)
    assert shelf.do(work) == answer
    changed = answer in ({"written": True}, {"value": 1})
    assert shelf.lapsed == ([] if changed else [b"k"]), "a passed-over key is named, to be removed"
    assert shelf.count() == int(changed)


def test_what_expired_is_removed_and_nothing_else(shelf: Shelf) -> None:
    shelf.do(lambda here: here.set("k", 1, SECOND))
    shelf.do(lambda here: here.set("other", 1))
    shelf.book.clock.advance(SECOND)
    assert shelf.get("k") is NONE
    names = shelf.lapsed
    shelf.do(lambda here: here.remove_expired([*names, b"other", b"absent"]))
    assert shelf.stored() == {"entries": 1, "contents": 0, "expiries": 0}
    shelf.do(lambda here: here.set("k", 2))
    shelf.do(lambda here: here.remove_expired(names))
    assert shelf.get("k") == 2


def test_the_space_s_own_expiry_holds_for_what_names_none(shelf: Shelf) -> None:
    made = Shelf(expire_us=10 * SECOND)
    made.call("set", "set", 1)
    made.call("incr", "incr")
    made.call("swap", "swap", NONE, 1)
    made.call("set", "own", 1, 3 * SECOND)
    listed = made.keys()
    ttl = {key: made.call("get", key)["ttl"].seconds for key in listed}
    assert ttl == {"set": 10, "incr": 10, "swap": 10, "own": 3}
    made.do(lambda here: here.persist("set"))
    assert made.do(lambda here: here.get("set"))["ttl"] is None


def test_swap_asks_for_type_and_value(shelf: Shelf) -> None:
    shelf.do(lambda here: here.set("k", Decimal("1.0")))
    for other in (1, 1.0, Decimal("1.00"), "1", NONE, None):
        assert shelf.call("swap", "k", other, 2) == {"written": False}
    assert shelf.do(lambda here: here.swap("k", Decimal("1.0"), {"a": 1}, SECOND))["written"]
    assert shelf.do(lambda here: here.swap("k", {"a": 1, "b": NONE}, 3))["written"]
    assert shelf.do(lambda here: here.get("k")) == {"value": 3, "ttl": None}


def test_counters(shelf: Shelf) -> None:
    assert shelf.do(lambda here: here.incr("n", 5)) == {"value": 5}
    shelf.do(lambda here: here.expire("n", SECOND))
    assert shelf.do(lambda here: here.incr("n", -7)) == {"value": -2}
    assert shelf.do(lambda here: here.get("n"))["ttl"] == timedelta(seconds=1), "kept"
    shelf.do(lambda here: here.set("n", limits.INT_MAX))
    with pytest.raises(NumberTooLarge):
        shelf.do(lambda here: here.incr("n"))
    assert shelf.get("n") == limits.INT_MAX
    others: list[Any] = [True, 1.0, Decimal(1), "1", None, [], {}]
    for value in others:
        shelf.call("set", "n", value)
        with pytest.raises(NotANumber):
            shelf.do(lambda here: here.incr("n"))


@pytest.mark.parametrize("by", [True, 1.0, "1", None])
def test_a_counter_grows_by_integers(shelf: Shelf, by: Any) -> None:
    with pytest.raises(TypeRefused):
        shelf.do(lambda here: here.incr("n", by))


def test_delete(shelf: Shelf) -> None:
    assert shelf.do(lambda here: here.delete("k")) == {"deleted": False}
    shelf.do(lambda here: here.set("k", "x" * 5000, SECOND))
    assert shelf.stored() == {"entries": 1, "contents": 1, "expiries": 1}
    assert shelf.do(lambda here: here.delete("k")) == {"deleted": True}
    assert shelf.stored() == {"entries": 0, "contents": 0, "expiries": 0}
    assert shelf.count() == 0


def test_expire_and_persist(shelf: Shelf) -> None:
    assert shelf.do(lambda here: here.expire("k", SECOND)) == {"found": False}
    shelf.do(lambda here: here.set("k", 1))
    assert shelf.do(lambda here: here.expire("k", SECOND)) == {"found": True}
    assert shelf.do(lambda here: here.expire("k", 9 * SECOND)) == {"found": True}
    assert shelf.stored()["expiries"] == 1
    assert shelf.do(lambda here: here.persist("k")) == {"found": True}
    assert shelf.do(lambda here: here.persist("k")) == {"found": True}
    shelf.book.clock.advance(99 * SECOND)
    assert shelf.get("k") == 1
    for wrong in (0, -1, 1001 * 365 * 86_400 * SECOND):
        with pytest.raises(ExpireRefused):
            shelf.call("expire", "k", wrong)
        with pytest.raises(ExpireRefused):
            shelf.call("set", "k", 2, wrong)
        with pytest.raises(ExpireRefused):
            shelf.call("lock", "l", "h", wrong)
    assert shelf.get("k") == 1


def moment(offset_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=START_US + offset_us)


def test_a_lock(shelf: Shelf) -> None:
    held = shelf.do(lambda here: here.lock("k", "a", 10 * SECOND))
    fence = held["fence"]
    assert held == {"held": True, "fence": START_US + 1, "until": moment(10 * SECOND)}
    assert shelf.do(lambda here: here.get("k")) == {"value": "a", "ttl": timedelta(seconds=10)}
    refused = shelf.do(lambda here: here.lock("k", "b", 10 * SECOND))
    assert refused == {"held": False, "fence": None, "until": moment(10 * SECOND)}
    shelf.book.clock.advance(4 * SECOND)
    again = shelf.do(lambda here: here.lock("k", "a", 3 * SECOND))
    assert again == {"held": True, "fence": fence, "until": moment(10 * SECOND)}, "never sooner"
    again = shelf.do(lambda here: here.lock("k", "a", 8 * SECOND))
    assert again == {"held": True, "fence": fence, "until": moment(12 * SECOND)}, "not added"
    shelf.do(lambda here: here.persist("k"))
    again = shelf.do(lambda here: here.lock("k", "a", 3 * SECOND))
    assert again == {"held": True, "fence": fence, "until": None}, "it never ends"
    shelf.do(lambda here: here.expire("k", 3 * SECOND))
    assert shelf.do(lambda here: here.unlock("k", "b")) == {"released": False}
    shelf.book.clock.advance(3 * SECOND)
    assert shelf.do(lambda here: here.unlock("k", "a")) == {"released": False}, "lapsed"
    other = shelf.do(lambda here: here.lock("k", "b", SECOND))
    assert other["held"]
    assert other["fence"] > fence


def test_unlock_deletes_nothing_and_frees_at_once(shelf: Shelf) -> None:
    first = shelf.do(lambda here: here.lock("k", "a", 10 * SECOND))
    assert shelf.do(lambda here: here.unlock("k", "a")) == {"released": True}
    assert shelf.stored() == {"entries": 1, "contents": 0, "expiries": 1}
    assert shelf.get("k") is NONE
    assert shelf.do(lambda here: here.unlock("k", "a")) == {"released": False}
    second = shelf.do(lambda here: here.lock("k", "b", SECOND))
    assert second["held"]
    assert second["fence"] > first["fence"]


def test_a_plain_value_is_no_lock(shelf: Shelf) -> None:
    shelf.do(lambda here: here.set("k", "a"))
    held = shelf.do(lambda here: here.lock("k", "a", SECOND))
    assert held == {"held": False, "fence": None, "until": None}
    assert shelf.do(lambda here: here.unlock("k", "a")) == {"released": False}
    shelf.do(lambda here: here.delete("k"))
    shelf.do(lambda here: here.lock("k", "a", SECOND))
    shelf.do(lambda here: here.set("k", "a"))
    assert shelf.do(lambda here: here.unlock("k", "a")) == {"released": False}, "it was broken"


def test_a_fence_survives_a_change_of_expiry_and_two_calls_in_one_transaction(
    shelf: Shelf,
) -> None:
    first = shelf.do(lambda here: here.lock("k", "a", SECOND))
    shelf.do(lambda here: here.expire("k", 9 * SECOND))
    assert shelf.do(lambda here: here.lock("k", "a", SECOND))["fence"] == first["fence"]
    shelf.do(lambda here: here.unlock("k", "a"))
    both = shelf.do(lambda here: [here.lock("k", "b", SECOND), here.lock("k", "b", 2 * SECOND)])
    assert both[0]["fence"] == both[1]["fence"] > first["fence"]
    after = shelf.do(lambda here: here.lock("k", "b", SECOND))
    assert after["fence"] == both[0]["fence"]


def test_a_lock_that_is_named_by_its_fence_is_that_one_only(shelf: Shelf) -> None:
    """Two who go by one name are told apart: the second one's lock is not the first one's."""
    first = shelf.do(lambda here: here.lock("k", "a", 10 * SECOND))["fence"]
    extended = shelf.do(lambda here: here.lock("k", "a", 20 * SECOND, first))
    assert extended == {"held": True, "fence": first, "until": moment(20 * SECOND)}
    shelf.book.clock.advance(20 * SECOND)
    lost = {"held": False, "fence": None, "until": None}
    assert shelf.do(lambda here: here.lock("k", "a", 9 * SECOND, first)) == lost, "none is acquired"
    assert shelf.lapsed == [b"k"], "and that it has ended lasts"
    assert shelf.do(lambda here: here.unlock("k", "a", first)) == {"released": False}
    second = shelf.do(lambda here: here.lock("k", "a", 5 * SECOND))
    held = {"held": False, "fence": None, "until": second["until"]}
    assert shelf.do(lambda here: here.lock("k", "a", 9 * SECOND, first)) == held
    assert shelf.do(lambda here: here.unlock("k", "a", first)) == {"released": False}
    assert shelf.do(lambda here: here.get("k"))["ttl"] == timedelta(seconds=5)
    assert shelf.do(lambda here: here.unlock("k", "b", second["fence"])) == {"released": False}
    assert shelf.do(lambda here: here.unlock("k", "a", second["fence"])) == {"released": True}


def test_listing(shelf: Shelf) -> None:
    names = ["a", "a b", "a/1", "aé", "b", "b%2F", "ﬀ", "☃"]
    for name in reversed(names):
        shelf.call("set", name, "x" * 9000)
    ordered = sorted(names, key=str.encode)
    assert shelf.keys() == ordered
    assert shelf.keys("a") == [name for name in ordered if name.startswith("a")]
    assert shelf.keys("a", "a b") == ["a/1", "aé"]
    assert shelf.keys("", "a") == ordered[1:]
    assert shelf.keys("", "a\0") == ordered[1:]
    assert shelf.keys("b", "a") == ["b", "b%2F"]
    assert shelf.keys("", "", 3) == ordered[:3]
    assert shelf.keys("nothing") == []
    with shelf.book.begin_transaction() as tx:
        entries = [pair for step in tx.scan(*keys.within(shelf.space.entries)) for pair in step]
    assert max(len(value) for _, value in entries) < 100, "large values stand beside"


def test_a_listing_passes_over_any_number_of_expired_keys(shelf: Shelf) -> None:
    for number in range(1500):
        life = SECOND if number % 3 else None
        shelf.call("set", f"{number:05}", number, life)
    shelf.book.clock.advance(SECOND)
    assert shelf.keys() == [f"{n:05}" for n in range(1500) if n % 3 == 0]
    assert 1 <= len(shelf.lapsed) < 100
    assert shelf.count() == 500


def test_drop_keys(shelf: Shelf) -> None:
    for name in ("a:1", "a:2", "a:3", "b"):
        shelf.call("set", name, "x" * 6000, 5 * SECOND)
    shelf.do(lambda here: here.set("a:2", 1, SECOND))
    shelf.book.clock.advance(SECOND)
    assert shelf.do(lambda here: sum(here.drop("a:"))) == 2, "the expired one was not there"
    assert shelf.keys() == ["b"]
    assert shelf.count() == 1
    shelf.do(lambda here: here.set("a:1", 2))
    shelf.book.clock.advance(5 * SECOND)
    while shelf.sweep():
        pass
    assert shelf.stored() == {"entries": 1, "contents": 0, "expiries": 0}
    assert shelf.get("a:1") == 2, "written again since, under an older expiry in the index"
    assert shelf.do(lambda here: sum(here.drop(""))) == 1
    assert shelf.do(lambda here: sum(here.drop(""))) == 0
    assert shelf.count() == 0


def test_a_sweep_takes_a_bounded_slice_of_what_is_due(shelf: Shelf) -> None:
    for number in range(10):
        shelf.call("set", f"k{number}", number, SECOND)
    shelf.do(lambda here: here.set("later", 1, 2 * SECOND))
    shelf.do(lambda here: here.set("stays", 1))
    assert shelf.sweep() == 0
    assert shelf.do(lambda here: here.next_expiry_us()) == START_US + SECOND
    shelf.do(lambda here: here.set("k0", "again"))
    shelf.do(lambda here: here.expire("k1", 2 * SECOND))
    shelf.book.clock.advance(SECOND)
    assert [shelf.sweep(4), shelf.sweep(4), shelf.sweep(4)] == [4, 4, 0]
    assert shelf.keys() == ["k0", "k1", "later", "stays"]
    assert shelf.stored() == {"entries": 4, "contents": 0, "expiries": 2}


def test_a_sweep_goes_on_where_the_last_one_ended(shelf: Shelf) -> None:
    for number in range(6):
        shelf.call("set", f"k{number}", number, (number + 1) * SECOND)
    shelf.book.clock.advance(4 * SECOND)
    done, last = shelf.do(lambda here: here.sweep(3))
    assert (done, keys.expiry_time(last)) == (3, START_US + 3 * SECOND)
    assert shelf.do(lambda here: here.next_expiry_us(last)) == START_US + 4 * SECOND
    done, last = shelf.do(lambda here: here.sweep(3, last))
    assert (done, keys.expiry_time(last)) == (1, START_US + 4 * SECOND)
    assert shelf.do(lambda here: here.sweep(3, last)) == (0, last)
    assert shelf.keys() == ["k4", "k5"]


def test_keys_have_bounds(shelf: Shelf) -> None:
    for good in ("x", "é" * 512, "a" * 1024, " ", "\x01", "../..", "%00", "'"):
        shelf.call("set", good, 1)
        assert shelf.get(good) == 1
    wrong: list[tuple[Any, type[Refusal]]] = [
        ("", BadRequest), ("a" * 1025, BadRequest), ("é" * 513, BadRequest), ("a\0", BadRequest),
        ("\ud800", TypeRefused), (1, TypeRefused), (None, TypeRefused), (b"k", TypeRefused),
        (NONE, TypeRefused), (["k"], TypeRefused),
    ]  # fmt: skip
    for key, refusal in wrong:
        with pytest.raises(refusal):
            shelf.call("set", key, 1)


@pytest.mark.parametrize("call", ["set", "swap", "expect", "compare"])
def test_a_large_value_is_gone_through_in_steps(shelf: Shelf, call: str) -> None:
    ticks: list[None] = []
    large, other = [0] * 50_000, {"a": [0] * 25_000, "b": [1] * 25_000}
    shelf.call("set", "k", dict(reversed(other.items())))

    def work(here: SpaceKeys) -> Any:
        if call == "set":
            return here.set("k", large)
        if call == "swap":
            return here.swap("k", other, large)
        return here.swap("k", large if call == "expect" else other, 1)

    with shelf.book.begin_transaction() as tx:
        here = SpaceKeys(tx, shelf.space, lambda: ticks.append(None))
        assert work(here) == {"written": call != "expect"}
        shelf.book.commit(tx) if tx.size else tx.release()
    assert len(ticks) > 250
    if call in ("set", "swap"):
        assert shelf.get("k") == large


def test_a_value_that_is_too_large_is_not_packed_to_its_end(shelf: Shelf) -> None:
    steps: list[int] = []
    for times in (2, 20):
        value = ["x" * 10_000] * (times * 105)
        with shelf.book.begin_transaction() as tx:
            ticks: list[None] = []
            here = SpaceKeys(tx, shelf.space, lambda: ticks.append(None))  # noqa: B023
            with pytest.raises(TooLarge):
                here.set("k", value)
            assert here.swap("k", value, 1) == {"written": False}
        steps.append(len(ticks))
    assert steps[1] < 4 * steps[0]


def test_values_have_bounds(shelf: Shelf) -> None:
    shelf.do(lambda here: here.set("k", "x" * (limits.CACHE_VALUE_BYTES - 5)))
    assert len(shelf.get("k")) == limits.CACHE_VALUE_BYTES - 5
    with pytest.raises(TooLarge):
        shelf.do(lambda here: here.set("k", "x" * limits.CACHE_VALUE_BYTES))
    with pytest.raises(TypeRefused):
        shelf.do(lambda here: here.set("k", float("nan")))
    for holder, refusal in (("", BadRequest), ("x" * 1025, BadRequest), (5, TypeRefused)):
        with pytest.raises(refusal):
            shelf.call("lock", "k2", holder, SECOND)


def test_a_dropped_space_takes_its_keys_and_its_name_comes_back_empty(shelf: Shelf) -> None:
    shelf.do(lambda here: here.set("k", "x" * 9000, SECOND))
    with shelf.book.begin_transaction() as tx:
        spaces.drop_space(tx, shelf.space)
        shelf.book.commit(tx)
    assert shelf.stored() == {"entries": 0, "contents": 0, "expiries": 0}
    with shelf.book.begin_transaction() as tx:
        assert spaces.find_space(tx, shelf.space.database, "c") is None
        again = spaces.define_space(tx, shelf.space.database, "c")
        shelf.book.commit(tx)
    assert again.id != shelf.space.id


def test_declaring_a_space(shelf: Shelf) -> None:
    with shelf.book.begin_transaction() as tx:
        database = shelf.space.database
        kept = spaces.define_space(tx, database, "c", expire_us=5, taken=IfExists.SKIP)
        assert kept == shelf.space
        made = spaces.define_space(
            tx, database, "c", expire_us=5, comment="new", taken=IfExists.OVERWRITE
        )
        assert (made.id, made.expire_us, made.comment) == (shelf.space.id, 5, "new")
        assert list(spaces.spaces(tx, database, unpaced)) == [made]
        assert made.path == "shop.main.c"


# --- histories ------------------------------------------------------------------------------------


def test_what_was_removed_as_expired_stays_so_after_a_restart_under_an_earlier_clock(
    shelf: Shelf,
) -> None:
    shelf.do(lambda here: here.set("k", 1, 10 * SECOND))
    shelf.do(lambda here: here.set("unseen", 1, 10 * SECOND))
    shelf.book.clock.advance(11 * SECOND)
    assert shelf.get("k") is NONE
    shelf.do(lambda here: here.remove_expired(shelf.lapsed))
    shelf.book.durable()
    last = shelf.book.frames[-1]
    early = ManualClock(START_US - 3600 * SECOND)
    ledger = Ledger(
        shelf.book.engine,
        LogEnd(last.sequence, 1, last.time),
        early,
        SeededRng(3),
        lambda _: None,
        derived.kept,
    )
    with ledger.begin_transaction() as tx:
        here = SpaceKeys(tx, shelf.space)
        assert here.get("k") is NONE
        assert here.get("unseen") is NONE, "the log is past its time"
        here.sweep(10)
        ledger.commit(tx, BY)
