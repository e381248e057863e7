"""The testee of this client for the conformance suite: `clients/conformance/README.md`."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import traceback
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType, ModuleType
from typing import Any, Final
from uuid import UUID

import storeclient
from storeclient import NONE, AsyncClient, AsyncDatabase, Position, RecordId, errors, search
from storeclient.cache import NEVER, AsyncCache, AsyncLease
from storeclient.changes import Commit
from storeclient.exchange import MINORS
from storeclient.groups import AsyncConsumer, AsyncDelivery, AsyncGroup, Settled
from storeclient.messages import Message
from storeclient.mirrors import AsyncMirror, Copied
from storeclient.moments import AsyncMoment
from storeclient.topics import AsyncPublisher, AsyncTopic
from storeclient.vaults import AsyncSeal, AsyncVault
from storeclient.watches import AsyncWatch

Call = dict[str, Any]
MICROSECOND: Final = timedelta(microseconds=1)
LINE_BYTES: Final = 64 * 1024 * 1024
TIMES: Final = MappingProxyType(
    {
        "quiet": "QUIET_SECONDS",
        "answer": "ANSWER_SECONDS",
        "leaving": "LEAVING_SECONDS",
        "grace": "GRACE_SECONDS",
    }
)
"""Constants of the client that `times` of `open` exchanges."""


class Unsupported(Exception):
    """The language cannot express it."""


class LoaderFailed(Exception):
    """A loader failed, as the suite has asked for."""


# --- values ---------------------------------------------------------------------------------------


class Opaque:
    """An object that is no value."""


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(2000):
        value = [value]
    return value


WEST: Final = timezone(timedelta(hours=-2))
BAD: Final[dict[str, Callable[[], Any]]] = {
    "nan": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "int": lambda: 2**63,
    "naive": lambda: datetime(2026, 1, 2),
    "year": lambda: datetime.max.replace(tzinfo=WEST),
    "object": Opaque,
    "deep": _deep,
}


def read(given: Any) -> Any:
    """Return the value of a tagged one."""
    if isinstance(given, list):
        return [read(one) for one in given]
    if not isinstance(given, dict):
        return given
    if len(given) == 1:
        (tag, inner), *_ = given.items()
        if tag in READERS:
            return READERS[tag](inner)
    return {name: read(one) for name, one in given.items()}


SEARCH: Final[dict[str, Callable[..., Any]]] = {
    "any": search.any,
    "all": search.all,
    "not": search.not_,
    "phrase": search.phrase,
    "prefix": search.prefix,
    "fuzzy": search.fuzzy,
    "boost": search.boost,
}

READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$int": int,
    "$float": float,
    "$none": lambda _: NONE,
    "$dt": lambda text: datetime.fromisoformat(text.replace("Z", "+00:00")),
    "$dec": Decimal,
    "$rec": lambda pair: RecordId(pair[0], read(pair[1])),
    "$dur": lambda text: timedelta(microseconds=int(text)),
    "$bytes": base64.b64decode,
    "$uuid": UUID,
    "$obj": lambda inner: {name: read(one) for name, one in inner.items()},
    "$bad": lambda name: BAD[name](),
    "$search": lambda made: SEARCH[made[0]](*map(read, made[1:])),
    "$vector": lambda texts: array("f", map(float, texts)),
}


def write(value: Any) -> Any:
    """Return the tagged form of a value."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return {"$int": str(value)}
    if isinstance(value, float):
        return {"$float": repr(value)}
    if isinstance(value, list | tuple):
        return [write(one) for one in value]
    if isinstance(value, dict):
        found = {name: write(one) for name, one in value.items()}
        return {"$obj": found} if len(found) == 1 and next(iter(found)).startswith("$") else found
    if value is NONE:
        return {"$none": True}
    if isinstance(value, datetime):
        at = value.astimezone(UTC)
        return {"$dt": f"{at.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"}
    if isinstance(value, Decimal):
        return {"$dec": str(value)}
    if isinstance(value, RecordId):
        return {"$rec": [value.table, write(value.id)]}
    if isinstance(value, timedelta):
        return {"$dur": str(value // MICROSECOND)}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, UUID):
        return {"$uuid": str(value)}
    raise TypeError(f"no value: {value!r}")


def seconds(milliseconds: float | None) -> float | None:
    """Return a time of a call in the unit of this client."""
    return None if milliseconds is None else milliseconds / 1000


def given(call: Call, *names: str) -> dict[str, Any]:
    """Return those arguments that the call has."""
    return {name: call[name] for name in names if call.get(name) is not None}


def times(call: Call, *names: str) -> dict[str, Any]:
    """Return those arguments that are times, in seconds."""
    return {name: seconds(call[name]) for name in names if call.get(name) is not None}


# --- answers --------------------------------------------------------------------------------------


def position_of(position: Position | None) -> Any:
    """Return a position as a value."""
    if position is None:
        return None
    return {"seq": position.seq, "store": position.store, "epoch": position.epoch}


def result_of(result: storeclient.Result) -> Any:
    """Return a result as a value."""
    names = ("value", "kind", "rows", "took", "changed")
    return {name: getattr(result, name) for name in names}


def answer_of(answer: storeclient.Answer | None) -> Any:
    """Return the answer of a script as a value."""
    if answer is None:
        return None
    found = {"results": [result_of(one) for one in answer.results]}
    return found | position_of(answer.position)


def message_of(message: Message) -> Any:
    """Return a message as a value."""
    names = ["position", "at", "key", "id", "headers", "value", "bytes"]
    if isinstance(message, AsyncDelivery):
        names += ["receipt", "attempt", "deadline", "member"]
    found = {name: getattr(message, name) for name in names}
    return found | {"headers": dict(found["headers"])}


def commit_of(commit: Commit) -> Any:
    """Return a commit of a feed as a value."""
    found: dict[str, Any] = {name: getattr(commit, name) for name in ("seq", "at", "by", "reason")}
    names = ("action", "id", "value", "before", "missing")
    found["changes"] = [{name: getattr(one, name) for name in names} for one in commit.changes]
    return found | {"position": position_of(commit.position)}


def settled_of(settled: Settled) -> Any:
    """Return what came of receipts as a value."""
    stale = list(settled.stale_receipts)
    return {"done": settled.done, "stale": settled.stale, "stale_receipts": stale}


def causes(error: BaseException) -> list[BaseException]:
    """Return an error and the chain of its causes."""
    found: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in found:
        found.append(at)
        at = at.__cause__
    return found


def error_of(error: BaseException) -> dict[str, Any]:
    """Return the error of an answer."""
    chain = causes(error)
    refusals = (one.code for one in chain[1:] if isinstance(one, errors.Refused))
    found: dict[str, Any] = {
        "kind": kind_of(error),
        "text": "\n".join(f"{one!r} {one}" for one in chain),
        "cause": next(refusals, None),
    }
    if found["kind"] == "Testee":
        traceback.print_exception(error)
    if found["kind"] == "Invalid":
        found["path"] = str(error.args[0]).partition(": ")[0] if error.args else None
    if isinstance(error, errors.Refused):
        names = ("code", "status", "retry", "request", "statement", "line", "column")
        found |= {name: getattr(error, name) for name in names}
        found["message"] = str(error.args[0])
        found["detail"] = write(error.detail)
        found["results"] = [write(result_of(one)) for one in error.results]
    return found


def kind_of(error: BaseException) -> str:
    """Return the kind of an error."""
    kinds: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
        (asyncio.CancelledError, "Cancelled"),
        (errors.Closed, "Closed"),
        (errors.OutcomeUnknown, "OutcomeUnknown"),
        (errors.Refused, "Refused"),
        (errors.Unreachable, "Unreachable"),
        (errors.ProtocolBroken, "ProtocolBroken"),
        (FileExistsError, "Exists"),
        (LoaderFailed, "Loader"),
        (Misuse, "Testee"),
        ((TypeError, ValueError), "Invalid"),
    )
    return next((name for kind, name in kinds if isinstance(error, kind)), "Testee")


class Misuse(ValueError):
    """The suite asked for something that this program does not know."""


# --- calls ----------------------------------------------------------------------------------------


@dataclass
class Testee:
    """Names that the suite has given, and the calls under way."""

    names: dict[str, Any] = field(default_factory=dict)
    events: dict[str, list[Any]] = field(default_factory=dict)
    copies: dict[str, list[Copied]] = field(default_factory=dict)
    deliveries: dict[str, AsyncDelivery] = field(default_factory=dict)
    publishers: dict[tuple[str, ...], AsyncPublisher] = field(default_factory=dict)
    running: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    let: dict[str, asyncio.Event] = field(default_factory=dict)
    exchanged: list[tuple[ModuleType, str, float]] = field(default_factory=list)

    def begin(self, call: Call) -> None:
        """Begin a call, which is answered when it ends."""
        task = asyncio.create_task(self._answer(call))
        self.running[call["id"]] = task
        task.add_done_callback(lambda _: self.running.pop(call["id"], None))

    async def _answer(self, call: Call) -> None:
        answer: dict[str, Any] = {"id": call["id"]}
        try:
            work = getattr(self, "on_" + call["call"].replace(".", "_"), None)
            if work is None:
                raise Misuse(f"no such call: {call['call']}")
            answer["value"] = write(await work(call))
        except Unsupported as why:
            answer["skip"] = str(why)
        except (Exception, asyncio.CancelledError) as error:
            answer["error"] = error_of(error)
        sys.stdout.write(json.dumps(answer, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def named(self, call: Call) -> Any:
        """Return what `on` names."""
        if call.get("on") not in self.names:
            raise Misuse(f"nothing is named {call.get('on')!r}")
        return self.names[call["on"]]

    def client(self, call: Call) -> AsyncClient:
        """Return the client that `on` names."""
        found = self.named(call)
        assert isinstance(found, AsyncClient)
        return found

    # --- the testee itself

    async def on_hello(self, call: Call) -> Any:
        return {"language": "python", "version": storeclient.__version__, "minor": MINORS[1]}

    async def on_reset(self, call: Call) -> None:
        here = asyncio.current_task()
        others = [task for task in self.running.values() if task is not here]
        clients = [one for one in self.names.values() if isinstance(one, AsyncClient)]
        mirrors = [one for one in self.names.values() if isinstance(one, AsyncMirror)]
        for task in others:
            task.cancel()
        for client in clients:
            for node in client._nodes._nodes:
                if node.connection is not None:
                    node.connection.abort()
        await asyncio.gather(*others, return_exceptions=True)
        ends = [
            *(one.__aexit__(None, None, None) for one in mirrors),
            *(c.close() for c in clients),
        ]
        for error in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(error, Exception) and not isinstance(error, storeclient.StoreError):
                traceback.print_exception(error)
        for module, name, before in self.exchanged:
            setattr(module, name, before)
        for kept in (
            self.names, self.events, self.copies, self.deliveries, self.publishers, self.let
        ):  # fmt: skip
            kept.clear()
        self.exchanged.clear()

    async def on_cancel(self, call: Call) -> None:
        if (task := self.running.get(call["of"])) is not None:
            task.cancel()

    async def on_let(self, call: Call) -> None:
        self.let.setdefault(call["name"], asyncio.Event()).set()

    # --- clients

    async def on_open(self, call: Call) -> None:
        for name, milliseconds in (call.get("times") or {}).items():
            self._exchange(TIMES[name], milliseconds / 1000)
        more = given(call, "user", "password", "token", "reads")
        more |= times(call, "timeout", "connect_timeout")
        if call.get("tls"):
            more["tls"] = ssl.create_default_context(cafile=call["tls"]["ca"])
        told: list[Any] = []
        client = AsyncClient(call["addresses"], on_connection=told.append, **more)
        self.names[call["as"]], self.events[call["as"]] = client, told

    def _exchange(self, name: str, value: float) -> None:
        for module in [one for at, one in sys.modules.items() if at.startswith("storeclient.")]:
            if hasattr(module, name):
                self.exchanged.append((module, name, getattr(module, name)))
                setattr(module, name, value)

    async def on_connect(self, call: Call) -> Any:
        welcome = await self.client(call).connect()
        user = None if welcome.user is None else welcome.user["name"]
        return {
            "node": welcome.node, "version": welcome.version, "minor": welcome.minor, "user": user
        }  # fmt: skip

    async def on_ping(self, call: Call) -> None:
        await self.client(call).ping()

    async def on_close(self, call: Call) -> None:
        await self.client(call).close()

    async def on_describe(self, call: Call) -> Any:
        client = self.client(call)
        return f"{client!r} {client}"

    async def on_events(self, call: Call) -> Any:
        await asyncio.sleep(0)  # events of this turn are reported in the next one
        return [
            {
                "change": event.change,
                "address": event.address,
                "cause": None if event.error is None else repr(event.error),
            }
            for event in self.events[call["on"]]
        ]

    # --- scripts

    async def _run(self, call: Call) -> storeclient.Answer:
        on, params = self.named(call), read(call.get("params") or {})
        more = times(call, "timeout")
        if isinstance(on, AsyncMoment):
            return await on.run(call["script"], params, **more)
        more |= given(call, "ns", "db", "reason", "repeatable", "record", "after", "current")
        found: storeclient.Answer = await on.run(call["script"], params, **more)
        return found

    async def on_run(self, call: Call) -> Any:
        return answer_of(await self._run(call))

    async def on_query(self, call: Call) -> Any:
        return (await self._run(call)).value

    async def on_transaction(self, call: Call) -> Any:
        transaction = self._database(call).transaction()
        for one in call["statements"]:
            transaction.add(one["script"], read(one.get("params") or {}))
        more = given(call, "reason", "repeatable", "current") | times(call, "timeout")
        return answer_of(await transaction.run(**more))

    async def on_rows(self, call: Call) -> Any:
        on, params = self.named(call), read(call.get("params") or {})
        place = on if isinstance(on, AsyncMoment) else self._database(call)
        rows = place.rows(call["select"], params, **given(call, "page"))
        return [row async for row in rows]

    def _database(self, call: Call) -> AsyncDatabase:
        return self.client(call).database(call["ns"], call["db"])

    async def on_moment_open(self, call: Call) -> Any:
        moment = self._database(call).moment(**times(call, "keep"))
        await moment.__aenter__()
        self.names[call["as"]] = moment
        return position_of(moment.position)

    async def on_moment_close(self, call: Call) -> None:
        await self.named(call).__aexit__(None, None, None)

    # --- caches

    def _cache(self, call: Call) -> AsyncCache:
        return self.client(call).cache(call["ns"], call["db"], call["space"])

    async def on_cache_get(self, call: Call) -> Any:
        absent = object()
        found = await self._cache(call).get(call["key"], absent)
        return {"found": found is not absent, "value": None if found is absent else found}

    async def on_cache_set(self, call: Call) -> None:
        more = times(call, "ttl") | given(call, "keep_ttl")
        await self._cache(call).set(call["key"], read(call["value"]), **more)

    async def on_cache_set_if_absent(self, call: Call) -> Any:
        value = read(call["value"])
        return await self._cache(call).set_if_absent(call["key"], value, **times(call, "ttl"))

    async def on_cache_set_if_present(self, call: Call) -> Any:
        value = read(call["value"])
        return await self._cache(call).set_if_present(call["key"], value, **times(call, "ttl"))

    async def on_cache_compare_and_set(self, call: Call) -> Any:
        values = read(call["expect"]), read(call["value"])
        cache = self._cache(call)
        return await cache.compare_and_set(call["key"], *values, **times(call, "ttl"))

    async def on_cache_incr(self, call: Call) -> Any:
        by = {"by": read(call["by"])} if "by" in call else {}
        return await self._cache(call).incr(call["key"], **by)

    async def on_cache_delete(self, call: Call) -> Any:
        return await self._cache(call).delete(call["key"])

    async def on_cache_persist(self, call: Call) -> Any:
        return await self._cache(call).persist(call["key"])

    async def on_cache_expire(self, call: Call) -> Any:
        return await self._cache(call).expire(call["key"], call["ttl"] / 1000)

    async def on_cache_ttl(self, call: Call) -> Any:
        left = await self._cache(call).ttl(call["key"])
        return "never" if left == NEVER else left

    async def on_cache_keys(self, call: Call) -> Any:
        return await self._cache(call).keys(**given(call, "prefix", "after", "limit"))

    async def on_cache_all_keys(self, call: Call) -> Any:
        return [key async for key in self._cache(call).all_keys(**given(call, "prefix"))]

    async def on_cache_get_or_set(self, call: Call) -> Any:
        load, loads = call["load"], 0

        async def loader() -> Any:
            nonlocal loads
            loads += 1
            if load.get("after") is not None:
                await self.let.setdefault(load["after"], asyncio.Event()).wait()
            if load.get("fail"):
                raise LoaderFailed("the loader failed")
            return read(load["value"])

        ttl = seconds(call.get("ttl"))
        value = await self._cache(call).get_or_set(call["key"], ttl, loader)
        return {"value": value, "loads": loads}

    async def on_cache_lock(self, call: Call) -> Any:
        more = given(call, "holder", "renew")
        lease = await self._cache(call).lock(call["key"], call["ttl"] / 1000, **more)
        if lease is None:
            return None
        self.names[call["as"]] = lease
        return {"fence": lease.fence, "until": lease.until}

    async def on_lease_extend(self, call: Call) -> Any:
        return await self.named(call).extend(**times(call, "ttl"))

    async def on_lease_release(self, call: Call) -> Any:
        return await self.named(call).release()

    async def on_lease_state(self, call: Call) -> Any:
        lease = self.named(call)
        return {"lost": lease.lost, "fence": lease.fence, "until": lease.until}

    async def on_lease_lost(self, call: Call) -> None:
        lease = self.named(call)
        assert isinstance(lease, AsyncLease)
        while not lease.lost:
            await asyncio.sleep(0.005)

    # --- iterations

    async def on_next(self, call: Call) -> Any:
        try:
            found = await anext(self.named(call).iterator)
        except StopAsyncIteration:
            return {"end": True}
        if isinstance(found, AsyncDelivery):
            self.deliveries[found.receipt] = found
        return {"item": commit_of(found) if isinstance(found, Commit) else message_of(found)}

    async def on_stop(self, call: Call) -> None:
        found = self.named(call)
        if isinstance(found, AsyncMirror):
            await found.__aexit__(None, None, None)
        else:
            await found.stop()

    # --- topics

    def _topic(self, call: Call) -> AsyncTopic:
        return self.client(call).topic(call["ns"], call["db"], call["topic"])

    def _published(self, call: Call) -> dict[str, Any]:
        more = given(call, "key", "headers") | times(call, "delay")
        if call.get("message_id") is not None:
            more["id"] = call["message_id"]
        return more

    async def on_topic_publish(self, call: Call) -> Any:
        more = self._published(call) | given(call, "expect")
        if call.get("at") is not None:
            more["at"] = read(call["at"])
        found = await self._topic(call).publish(read(call["value"]), **more)
        return {"position": found.position, "duplicate": found.duplicate}

    async def on_topic_publish_many(self, call: Call) -> Any:
        more = given(call, "key", "headers", "expect") | times(call, "delay")
        found = await self._topic(call).publish_many(read(call["values"]), **more)
        return {"first": found.start, "last": found.stop - 1}

    async def on_publisher_publish(self, call: Call) -> Any:
        place = (call["on"], call["ns"], call["db"], call["topic"])
        if place not in self.publishers:
            self.publishers[place] = self._topic(call).publisher()
        more = self._published(call)
        found = await self.publishers[place].publish(read(call["value"]), **more)
        return {"position": found.position, "duplicate": found.duplicate}

    async def on_topic_read(self, call: Call) -> Any:
        more = given(call, "after", "limit") | times(call, "wait")
        return [message_of(one) for one in await self._topic(call).read(**more)]

    async def on_topic_messages(self, call: Call) -> None:
        more = given(call, "after", "follow")
        self.names[call["as"]] = Iteration(self._topic(call).messages(**more))

    async def on_reader_define(self, call: Call) -> None:
        at = call.get("at")
        reader = self._topic(call).reader(call["reader"])
        await (reader.define(end=True) if at == "end" else reader.define(read(at)))

    async def on_reader_read(self, call: Call) -> Any:
        more = given(call, "limit") | times(call, "wait")
        found = await self._topic(call).reader(call["reader"]).read(**more)
        return [message_of(one) for one in found]

    async def on_reader_commit(self, call: Call) -> None:
        await self._topic(call).reader(call["reader"]).commit(call["position"])

    async def on_reader_move(self, call: Call) -> None:
        await self._topic(call).reader(call["reader"]).move(read(call["at"]))

    async def on_reader_messages(self, call: Call) -> None:
        reader = self._topic(call).reader(call["reader"])
        self.names[call["as"]] = Iteration(reader.messages(**given(call, "follow")))

    async def on_reader_drop(self, call: Call) -> None:
        await self._topic(call).reader(call["reader"]).drop()

    # --- groups

    def _group(self, call: Call) -> AsyncGroup:
        return self._topic(call).group(call["group"])

    async def on_group_take(self, call: Call) -> Any:
        more = given(call, "count", "member") | times(call, "wait")
        found = await self._group(call).take(**more)
        self.deliveries |= {one.receipt: one for one in found}
        return [message_of(one) for one in found]

    async def on_group_ack(self, call: Call) -> Any:
        return settled_of(await self._group(call).ack(call["receipts"]))

    async def on_group_nack(self, call: Call) -> Any:
        more = given(call, "error") | times(call, "delay")
        return settled_of(await self._group(call).nack(call["receipts"], **more))

    async def on_group_extend(self, call: Call) -> Any:
        return settled_of(await self._group(call).extend(call["receipts"], call["by"] / 1000))

    async def on_group_give_up(self, call: Call) -> Any:
        return settled_of(await self._group(call).give_up(call["receipts"], **given(call, "error")))

    async def on_group_messages(self, call: Call) -> None:
        consumer = self._group(call).messages(**given(call, "prefetch", "member", "extend"))
        self.names[call["as"]] = Consuming(consumer)

    def _delivery(self, call: Call) -> AsyncDelivery:
        return self.deliveries[call["receipt"]]

    async def on_delivery_ack(self, call: Call) -> Any:
        return await self._delivery(call).ack()

    async def on_delivery_nack(self, call: Call) -> Any:
        return await self._delivery(call).nack(**given(call, "error"), **times(call, "delay"))

    async def on_delivery_extend(self, call: Call) -> Any:
        return await self._delivery(call).extend(call["by"] / 1000)

    async def on_delivery_give_up(self, call: Call) -> Any:
        return await self._delivery(call).give_up(**given(call, "error"))

    async def on_delivery_done(self, call: Call) -> Any:
        params = read(call.get("params") or {})
        return answer_of(await self._delivery(call).done(call["script"], params))

    # --- feeds

    async def on_watch(self, call: Call) -> None:
        start = call.get("from")
        if isinstance(start, dict):
            start = Position(**start)
        more = given(call, "actions", "where", "before")
        watch = self._database(call).watch(call["table"], start, **more)
        self.names[call["as"]] = Watching(watch)

    async def on_watch_position(self, call: Call) -> Any:
        return position_of(self.named(call).watch.position)

    async def on_mirror_open(self, call: Call) -> None:
        copies: list[Copied] = []
        more = given(call, "where", "page")
        mirror = self._database(call).mirror(call["table"], on_copy=copies.append, **more)
        await mirror.__aenter__()
        self.names[call["as"]], self.copies[call["as"]] = mirror, copies

    async def on_mirror_rows(self, call: Call) -> Any:
        return list(self.named(call).values())

    async def on_mirror_seq(self, call: Call) -> Any:
        return self.named(call).seq

    async def on_mirror_reached(self, call: Call) -> None:
        await self.named(call).reached(call["seq"])

    async def on_mirror_copies(self, call: Call) -> Any:
        await asyncio.sleep(0)
        return [
            {"rows": one.rows, "why": getattr(one.why, "code", None)}
            for one in self.copies[call["on"]]
        ]

    # --- vaults, backups, speed

    def _seal(self, call: Call) -> AsyncSeal:
        return self.client(call).store_seal() if call.get("vault") is None else self._vault(call)

    def _vault(self, call: Call) -> AsyncVault:
        return self.client(call).vault(call["ns"], call["db"], call["vault"])

    async def on_seal_unseal(self, call: Call) -> Any:
        return await self._seal(call).unseal(call["passphrase"])

    async def on_seal_seal(self, call: Call) -> None:
        await self._seal(call).seal()

    async def on_seal_change(self, call: Call) -> Any:
        old, more = call.get("old"), given(call, "rekey")
        return await self._seal(call).change_passphrase(old, call["new"], **more)

    async def on_vault_write(self, call: Call) -> Any:
        more = given(call, "if_absent", "expect", "reason")
        found = await self._vault(call).write(call["record"], read(call["value"]), **more)
        return {"written": found.written, "version": found.version}

    async def on_vault_reveal(self, call: Call) -> Any:
        found = await self._vault(call).reveal(call["record"], **given(call, "version", "reason"))
        names = ("id", "value", "version", "at")
        return {name: getattr(found, name) for name in names} | {"text": f"{found!r} {found}"}

    async def on_vault_list(self, call: Call) -> Any:
        return await self._vault(call).list(**given(call, "prefix", "after", "limit"))

    async def on_vault_erase(self, call: Call) -> Any:
        return await self._vault(call).erase(call["record"], **given(call, "reason"))

    async def on_backup_file(self, call: Call) -> Any:
        told: list[int] = []
        found = await self.client(call).backup(
            call["path"],
            progress=lambda done, total: told.append(done),
            **given(call, "ns", "db", "reason"),
        )
        names = ("bytes", "form", "records", "version")
        return {name: getattr(found, name) for name in names} | {"progress": told}

    async def on_load(self, call: Call) -> None:
        left, operation = iter(range(call["count"])), self._load(call)

        async def worker() -> None:
            for number in left:
                await operation(number)

        if call["operation"] == "rows":
            rows = self._database(call).rows(f"SELECT * FROM {call['table']}")
            assert sum([1 async for _ in rows]) == call["count"]
        else:
            await asyncio.gather(*(worker() for _ in range(call["depth"])))

    def _load(self, call: Call) -> Callable[[int], Awaitable[Any]]:
        if call["operation"] == "publish":
            topic = self._topic(call)
            return lambda number: topic.publish(number)
        if call["operation"] == "rows":
            return lambda number: asyncio.sleep(0)
        cache = self._cache(call)
        if call["operation"] == "get":
            return lambda number: cache.get(f"k{number % 1000}")
        return lambda number: cache.set(f"k{number % 1000}", number)


class Iteration:
    """A plain iterator of messages."""

    def __init__(self, iterator: AsyncIterator[Any]) -> None:
        self.iterator: Any = iterator

    async def stop(self) -> None:
        """End it."""
        await self.iterator.aclose()


class Consuming:
    """A consumer of a group."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self.iterator = consumer

    async def stop(self) -> None:
        """End it."""
        await self.iterator.stop()


class Watching:
    """A watch, and the iteration over its commits."""

    def __init__(self, watch: AsyncWatch) -> None:
        self.watch = watch
        self.iterator = watch.commits()

    async def stop(self) -> None:
        """End it."""
        await self.watch.stop()


async def main() -> None:
    """Make the calls of stdin until it ends."""
    testee, loop = Testee(), asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        calls = json.loads(line)
        for call in calls if isinstance(calls, list) else [calls]:
            testee.begin(call)
    await testee.on_reset({})


if __name__ == "__main__":
    asyncio.run(main())
