"""POST /script: a script in, its results out. The hot route, so a lean delegate."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final

from actors.runtime import ask_now
from actors.scripts.administering import administers
from protocol import binary, jsonvalues, limits
from protocol.errors import BadRequest, Refusal
from protocol.requests import RunScript, ScriptAnswer
from protocol.text import check_name, parse_duration
from protocol.values import LONG, MICROSECOND, Tick, Value, check_unicode, is_large, let_go
from protocol.weights import weigh
from surfaces.http import answers, results
from surfaces.http.callers import caller
from surfaces.http.exchange import Exchange
from surfaces.http.head import Head
from surfaces.http.running import RunningDelegate


@dataclass(slots=True)
class Asked:
    """What the body and the head of a request ask to be run."""

    script: str
    parameters: dict[str, Value] = field(default_factory=dict)
    namespace: str | None = None
    database: str | None = None
    timeout_us: int | None = None
    reason: str | None = None
    moment: str | None = None
    keep_us: int | None = None
    record: bool = False
    after: int | None = None
    current: bool = False


class ScriptDelegate(RunningDelegate):
    """Runs one script for one request."""

    _held: list[Value] | None = None
    """What a large answer was made of: it is to go piece by piece."""

    async def _run(self) -> None:
        await super()._run()
        if self._held:
            # Outside of what answers: the next request of this connection may be running by now,
            # and what fails here must not be taken for its failure.
            held, self._held = self._held, None
            await self._surface.long_work.run(partial(let_go, held))

    async def _answer(self) -> None:
        exchange = self._exchange
        head = exchange.head
        assert head is not None
        exchange.msgpack = head.wants_msgpack
        who = await caller(exchange)
        asked = await self._read(who.user)
        if exchange.connection.closed:
            return  # gone before it began
        run = RunScript(
            who, asked.script, exchange.request, asked.parameters, asked.namespace,
            asked.database, asked.timeout_us, asked.reason,
            moment=asked.moment, keep_us=asked.keep_us, record=asked.record,
            after=asked.after, current=asked.current,
        )  # fmt: skip
        self._running = True
        answer = await ask_now(self._surface.node.scripts, run)
        del run, asked
        exchange.committed = answer.committed
        large = is_large([result.value for result in answer.results], results.SMALL)
        if not exchange.connection.closed:
            await self._tell(answer, large)
        if large:
            self._held = [result.value for result in answer.results]

    async def _read(self, user: str) -> Asked:
        """What is asked. What it takes in memory counts for its user until it is answered: it may
        wait for messages, and be many times what came."""
        surface, exchange = self._surface, self._exchange
        head, body = exchange.head, exchange.body
        assert head is not None
        if len(body) <= limits.UNCOUNTED_BYTES:
            exchange.body = b""
            return read(head, body)
        exchange.own(user)
        exchange.body = b""
        if len(body) <= LONG:
            asked = read(head, body)
            exchange.weigh(len(asked.script) + weigh(asked.parameters))
            return asked
        asked = await surface.long_work.run(partial(read, head, body))
        del body
        weight = await surface.long_work.run(partial(weigh, asked.parameters))
        exchange.weigh(len(asked.script) + weight)
        return asked

    async def _tell(self, answer: ScriptAnswer, large: bool) -> None:
        exchange = self._exchange
        form = results.MSGPACK if exchange.msgpack else results.JSON
        work = self._surface.long_work
        refusal = answer.refusal
        if refusal is None:
            others = {
                "seq": answer.sequence,
                "store": answer.store,
                "epoch": answer.epoch,
                "ns": answer.namespace,
                "db": answer.database,
            }
            if answer.moment is not None:
                others["moment"] = answer.moment
            if large:
                body = await results.encode(form, answer.results, others, work)
            else:
                body = results.whole(form, answer.results, others)
            exchange.reply(200, body, form.kind)
            return
        said = answers.error(refusal, exchange.request)
        exchange.log_refusal(said)
        error = form.plain(said)
        body = await results.encode(form, answer.results, {"error": error}, work)
        status = answers.status_of(refusal, exchange.by_page)
        exchange.reply(status, body, form.kind, answers.error_fields(refusal))


def only_administers(exchange: Exchange) -> bool:
    """Whether a request does nothing but ask what runs, or end some of it. Its body stays."""
    head, route, body = exchange.head, exchange.route, exchange.body
    if head is None or route is None or route.lean is not ScriptDelegate:
        return False
    if len(body) > limits.ADMINISTERING_CHARACTERS:
        return False
    try:
        return administers(read(head, body).script)
    except Refusal:
        return False


def read(head: Head, body: bytes, tick: Tick | None = None) -> Asked:
    """What a request asks to be run. A text takes its place from the head; so does an object that
    names none.

    :param tick: called now and then while a long body is read
    :raises BadRequest: the body has another form
    :raises NameRefused: the place is not named by a name
    :raises TypeRefused: a string of it is not Unicode, or a parameter is no value
    """
    kind = head.fields.get(b"content-type", b"text/plain").lower()
    if kind.startswith(b"application/json"):
        asked = _from_object(
            jsonvalues.parse(body, tick), lambda plain: jsonvalues.from_json(plain, tick)
        )
    elif kind.startswith(b"application/msgpack"):
        asked = _from_object(binary.unpack_foreign(body, tick), _same)
    else:
        asked = Asked(_utf8(body))
    namespace = asked.namespace or head.text(b"store-namespace")
    database = asked.database or head.text(b"store-database")
    if namespace is not None:
        check_name(namespace, "namespace")
    if database is not None:
        check_name(database, "database")
        if namespace is None:
            raise BadRequest("a database is named together with its namespace")
    asked.namespace, asked.database = namespace, database
    asked.record = asked.record or _flag(head, b"store-record")
    after = _after(head)
    if asked.after is None:
        asked.after = after
    asked.current = asked.current or _flag(head, b"store-current")
    return asked


_DIGITS: Final = re.compile("[0-9]{1,16}")
_SEQUENCE: Final = f"a sequence, 0 to {limits.SEQUENCE_MAX}"
_SHOWN: Final = 40
"""Characters shown of what is none."""
_FIELDS: Final = frozenset(
    {
        "script", "params", "ns", "db", "timeout", "reason", "moment", "keep", "record", "after",
        "current",
    }
)  # fmt: skip


def _from_object(found: Any, value_of: Callable[[Any], Any]) -> Asked:
    if not isinstance(found, dict):
        raise BadRequest("the body is an object with a script")
    unknown = sorted(str(name) for name in found if name not in _FIELDS)
    if unknown:
        raise BadRequest(f"the body has no field {unknown[0]!r}", fields=sorted(_FIELDS))
    script = _string(found, "script")
    if script is None:
        raise BadRequest("the body names no script")
    parameters = found.get("params")
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, dict):
        raise BadRequest("params is an object")
    return Asked(
        script,
        {_unicode(str(name)): value_of(value) for name, value in parameters.items()},
        _string(found, "ns"),
        _string(found, "db"),
        _timeout_us(found),
        _reason(found),
        _string(found, "moment"),
        _duration_us(found, "keep", "keep is a duration such as '30s'"),
        _bool(found, "record"),
        _sequence(found.get("after")),
        _bool(found, "current"),
    )


def _timeout_us(found: dict[str, Any]) -> int | None:
    problem = "timeout is a positive duration such as '5s'"
    timeout = _duration_us(found, "timeout", problem)
    if timeout is not None and timeout <= 0:
        raise BadRequest(problem)
    return timeout


def _duration_us(found: dict[str, Any], name: str, problem: str) -> int | None:
    given = found.get(name)
    if given is None:
        return None
    if isinstance(given, str):
        given = parse_duration(_unicode(given))
    if not isinstance(given, timedelta):
        raise BadRequest(problem)
    return given // MICROSECOND


def _bool(found: dict[str, Any], name: str) -> bool:
    value = found.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"{name} is true or false")
    return bool(value)


def _flag(head: Head, name: bytes) -> bool:
    given = head.text(name)
    if given not in (None, "true", "false"):
        raise BadRequest(f"{name.decode().title()} is true or false")
    return given == "true"


def _after(head: Head) -> int | None:
    given = head.text(b"store-after")
    if given is None:
        return None
    if not _DIGITS.fullmatch(given):
        raise BadRequest(f"Store-After is {_SEQUENCE}, not {given[:_SHOWN]!r}")
    return _sequence(int(given))


def _sequence(given: Any) -> int | None:
    if given is None:
        return None
    if type(given) is not int or not 0 <= given <= limits.SEQUENCE_MAX:
        raise BadRequest(f"after is {_SEQUENCE}, not {str(given)[:_SHOWN]!r}")
    return given


def _string(found: dict[str, Any], name: str) -> str | None:
    value = found.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"{name} is a string")
    return None if value is None else _unicode(value)


def _unicode(text: str) -> str:
    """The text itself. JSON can bring half of a surrogate pair: what no answer, log or state could
    carry is refused before anything runs."""
    if not text.isascii():
        check_unicode(text)
    return text


def _reason(found: dict[str, Any]) -> str | None:
    reason = _string(found, "reason")
    if reason is not None and len(reason) > limits.REASON_CHARACTERS:
        raise BadRequest(f"a reason has at most {limits.REASON_CHARACTERS} characters")
    return reason


def _utf8(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the script is not UTF-8 at byte {error.start}") from None


def _same(value: Any) -> Any:
    return value
