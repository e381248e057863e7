"""Decoding of POST /script, from its head and its body."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from protocol import jsonvalues, limits
from protocol.errors import BadRequest
from protocol.foreign import unpack_foreign
from protocol.text import check_name, parse_duration
from protocol.values import MICROSECOND, Tick, Value, check_body, check_unicode
from surfaces.http.head import RequestHead
from surfaces.http.operation import SCHEMAS


@dataclass(slots=True)
class ScriptRequest:
    """Decoded POST /script request."""

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


def read(head: RequestHead, body: bytes, tick: Tick | None = None) -> ScriptRequest:
    """Decode a request. Namespace and database come from the head if the body is text, or an object
    without them.

    :param tick: called now and then while a long body is decoded
    :raises BadRequest: the body has another form
    :raises NameRefused: namespace or database is not a valid name
    :raises TypeRefused: a string is not valid Unicode, or a parameter is not a value
    """
    kind = head.fields.get(b"content-type", b"text/plain").lower()
    if kind.startswith(b"application/json"):
        asked = _from_object(
            jsonvalues.parse(body, tick), lambda plain: jsonvalues.from_json(plain, tick)
        )
    elif kind.startswith(b"application/msgpack"):
        asked = _from_object(unpack_foreign(body, tick, check_body), _same)
    else:
        asked = ScriptRequest(_utf8(body))
    namespace = asked.namespace or head.text(b"store-namespace")
    database = asked.database or head.text(b"store-database")
    if namespace is not None:
        check_name(namespace, "namespace")
    if database is not None:
        check_name(database, "database")
        if namespace is None:
            raise BadRequest("a database needs its namespace")
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
"""Characters of an invalid value shown in its error."""
_FIELDS: Final = frozenset(SCHEMAS["Script"]["properties"])


def _from_object(found: Any, value_of: Callable[[Any], Any]) -> ScriptRequest:
    if not isinstance(found, dict):
        raise BadRequest("the body must be an object with a script")
    unknown = sorted(str(name) for name in found if name not in _FIELDS)
    if unknown:
        raise BadRequest(f"unknown field {unknown[0]!r} in the body", fields=sorted(_FIELDS))
    script = _string(found, "script")
    if script is None:
        raise BadRequest("the body lacks the field script")
    parameters = found.get("params")
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, dict):
        raise BadRequest("params must be an object")
    return ScriptRequest(
        script,
        {_unicode(str(name)): value_of(value) for name, value in parameters.items()},
        _string(found, "ns"),
        _string(found, "db"),
        _timeout_us(found),
        _reason(found),
        _string(found, "moment"),
        _duration_us(found, "keep", "keep must be a duration such as '30s'"),
        _bool(found, "record"),
        _sequence(found.get("after")),
        _bool(found, "current"),
    )


def _timeout_us(found: dict[str, Any]) -> int | None:
    problem = "timeout must be a duration above zero, such as '5s'"
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
        raise BadRequest(f"{name} must be true or false")
    return bool(value)


def _flag(head: RequestHead, name: bytes) -> bool:
    given = head.text(name)
    if given not in (None, "true", "false"):
        raise BadRequest(f"{name.decode().title()} must be true or false")
    return given == "true"


def _after(head: RequestHead) -> int | None:
    given = head.text(b"store-after")
    if given is None:
        return None
    if not _DIGITS.fullmatch(given):
        raise BadRequest(f"Store-After must be {_SEQUENCE}, not {given[:_SHOWN]!r}")
    return _sequence(int(given))


def _sequence(given: Any) -> int | None:
    if given is None:
        return None
    if type(given) is not int or not 0 <= given <= limits.SEQUENCE_MAX:
        raise BadRequest(f"after must be {_SEQUENCE}, not {str(given)[:_SHOWN]!r}")
    return given


def _string(found: dict[str, Any], name: str) -> str | None:
    value = found.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"{name} must be a string")
    return None if value is None else _unicode(value)


def _unicode(text: str) -> str:
    """Return the text if it is valid Unicode. JSON can contain half of a surrogate pair, which no
    response, log or state could store, so it is refused before anything runs."""
    if not text.isascii():
        check_unicode(text)
    return text


def _reason(found: dict[str, Any]) -> str | None:
    reason = _string(found, "reason")
    if reason is not None and len(reason) > limits.REASON_CHARACTERS:
        raise BadRequest(f"the reason is too long: at most {limits.REASON_CHARACTERS} characters")
    return reason


def _utf8(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the script is not UTF-8 at byte {error.start}") from None


def _same(value: Any) -> Any:
    return value
