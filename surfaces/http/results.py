"""Encoding of script results and single values, JSON or msgpack, without blocking the loop.

A large response is encoded in slices. A response of a few rows takes the fast path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from protocol import binary, jsonvalues
from protocol.requests import Result
from protocol.values import Tick, Value, is_large
from surfaces.http import answers
from surfaces.long_work import LongWork

SMALL: Final = 256
"""Number of parts up to which a response takes the fast path."""


@dataclass(frozen=True, slots=True)
class ResponseEncoding:
    """Encoding of responses: JSON or msgpack.

    :ivar plain: converts a value of the language for `whole`
    :ivar whole: encodes a response whose values are converted
    :ivar steps: encodes a value of the language, in parts
    :ivar list_begin, object_begin: start of a list or an object of so many items
    :ivar field: name of a field, before its value
    """

    kind: bytes
    plain: Callable[[Any], Any]
    whole: Callable[[Any], bytes]
    steps: Callable[[Any, Tick, Callable[[bytes], None]], None]
    list_begin: Callable[[int], bytes]
    object_begin: Callable[[int], bytes]
    field: Callable[[str], bytes]
    between: bytes
    list_end: bytes
    object_end: bytes


def _same(value: Any) -> Any:
    return value


_headers: Final = msgpack.Packer(autoreset=True)

JSON: Final = ResponseEncoding(
    kind=answers.JSON,
    plain=jsonvalues.to_json,
    whole=jsonvalues.encode_plain,
    steps=jsonvalues.dump_in_steps,
    list_begin=lambda _count: b"[",
    object_begin=lambda _count: b"{",
    field=lambda name: b'"%s":' % name.encode("ascii"),
    between=b",",
    list_end=b"]",
    object_end=b"}",
)
MSGPACK: Final = ResponseEncoding(
    kind=answers.MSGPACK,
    plain=_same,
    whole=binary.pack,
    steps=binary.pack_in_steps,
    list_begin=lambda count: bytes(_headers.pack_array_header(count)),
    object_begin=lambda count: bytes(_headers.pack_map_header(count)),
    field=binary.pack,
    between=b"",
    list_end=b"",
    object_end=b"",
)


async def in_turns(
    form: ResponseEncoding,
    results: Sequence[Result],
    others: dict[str, Any],
    work: LongWork,
    user: str,
) -> bytes:
    """Encode a large response in slices: `results`, and further fields whose values are converted
    already."""
    return await work.run(user, lambda tick: _in_steps(form, results, others, tick))


async def encode_value(value: Value, work: LongWork, user: str) -> bytes:
    """Encode a value as JSON text; a large one in slices."""
    if not is_large(value, SMALL):
        return jsonvalues.dump(value)
    parts: list[bytes] = []
    await work.run(user, lambda tick: jsonvalues.dump_in_steps(value, tick, parts.append))
    return b"".join(parts)


def whole(form: ResponseEncoding, results: Sequence[Result], others: dict[str, Any]) -> bytes:
    """Encode a response of small values at once."""
    return form.whole({"results": [_shown(form, result) for result in results], **others})


def _in_steps(
    form: ResponseEncoding, results: Sequence[Result], others: dict[str, Any], tick: Tick
) -> bytes:
    parts = [form.object_begin(1 + len(others)), form.field("results")]
    parts.append(form.list_begin(len(results)))
    for number, result in enumerate(results):
        if number:
            parts.append(form.between)
        about = _about(result)
        parts += (form.object_begin(1 + len(about)), form.field("value"))
        form.steps(result.value, tick, parts.append)
        parts += _fields(form, about)
    parts.append(form.list_end)
    parts += _fields(form, others)
    return b"".join(parts)


def took(microseconds: int) -> str:
    """Format a measured time for people: `85us`, `1.4ms`, `2.31s`."""
    if microseconds < 1_000:
        return f"{microseconds}us"
    if microseconds < 1_000_000:
        return f"{microseconds / 1_000:.1f}ms"
    return f"{microseconds / 1_000_000:.2f}s"


def _shown(form: ResponseEncoding, result: Result) -> dict[str, Any]:
    return {"value": form.plain(result.value), **_about(result)}


def _about(result: Result) -> dict[str, Any]:
    about = {"kind": result.kind, "rows": result.rows, "took": took(result.took_us)}
    if result.changed is not None:
        about["changed"] = result.changed
    return about


def _fields(form: ResponseEncoding, fields: dict[str, Any]) -> list[bytes]:
    """Return the last fields of an object, and its end."""
    parts = []
    for name, value in fields.items():
        parts += [form.between, form.field(name), form.whole(value)]
    return [*parts, form.object_end]
