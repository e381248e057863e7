"""Field types: type checks of values, lossless conversion, and the texts of type errors.

An int is converted to float or decimal if no digit is lost. Nothing else is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, Final
from uuid import UUID

from language import tree
from protocol import limits
from protocol.text import format_value
from protocol.values import (
    FEW,
    NONE,
    NoneValue,
    RecordId,
    Tick,
    Value,
    equal,
    identical,
    paced,
    rank,
    type_name,
)

SHOWN: Final = 200
"""Maximum number of characters of a type, ASSERT or value in an error message."""
_EXACT_INT: Final = 2**53
"""Largest magnitude up to which every int is exactly a float."""


class _Misfit:
    pass


MISFIT: Final = _Misfit()
"""Marker returned by a `Fit` for a value that does not have the type."""

Fit = Callable[[Any, Tick], Any]
"""Returns the value to store (the same object if nothing changes), or `MISFIT`."""


_CLASSES: Final[dict[str, tuple[type, ...]]] = {
    "bool": (bool,), "int": (int,), "number": (int, float, Decimal), "string": (str,),
    "bytes": (bytes,), "datetime": (datetime,), "duration": (timedelta,), "uuid": (UUID,),
    "object": (dict,),
}  # fmt: skip
_CONVERTED: Final[dict[str, tuple[type, ...]]] = {"float": (float,), "decimal": (Decimal,)}
"""Classes of the types to which an int is converted; it is no value of them itself."""


def compile_type(node: tree.FieldType) -> Fit:
    """Compile a field type to the function that checks and converts a value."""
    if isinstance(node, tree.PlainType):
        return _plain(node.kind)
    if isinstance(node, tree.OptionType):
        of = compile_type(node.of)
        return lambda value, tick: value if value is NONE else of(value, tick)
    if isinstance(node, tree.ArrayType):
        return _array(node)
    if isinstance(node, tree.RecordType):
        return _record(frozenset(node.tables))
    if isinstance(node, tree.LiteralType):
        wanted = node.value
        return lambda value, tick: value if identical(value, wanted) else MISFIT
    return _union(node)


def _plain(kind: str) -> Fit:
    if kind == "any":
        return lambda value, tick: value
    if kind == "float":
        return _float
    if kind == "decimal":
        return _decimal
    classes = _CLASSES[kind]
    if len(classes) == 1:
        (only,) = classes
        return lambda value, tick: value if type(value) is only else MISFIT
    return lambda value, tick: value if type(value) in classes else MISFIT


def _float(value: Any, tick: Tick) -> Any:
    if type(value) is float:
        return value
    if type(value) is int and -_EXACT_INT <= value <= _EXACT_INT:
        return float(value)
    return MISFIT


def _decimal(value: Any, tick: Tick) -> Any:
    if type(value) is Decimal:
        return value
    return Decimal(value) if type(value) is int else MISFIT


def _array(node: tree.ArrayType) -> Fit:
    of, most = compile_type(node.of), node.most
    free = node.of == tree.PlainType("any")

    def fit(value: Any, tick: Tick) -> Any:
        if type(value) is not list or (most is not None and len(value) > most):
            return MISFIT
        if free:
            return value
        found = []
        changed = False
        for item in paced(value, tick):
            fitted = of(item, tick)
            if fitted is MISFIT:
                return MISFIT
            changed = changed or fitted is not item
            found.append(fitted)
        return found if changed else value

    return fit


def _record(tables: frozenset[str]) -> Fit:
    def fit(value: Any, tick: Tick) -> Any:
        if type(value) is RecordId and (not tables or value.table in tables):
            return value
        return MISFIT

    return fit


def _union(node: tree.UnionType) -> Fit:
    """Compile a union: the first member that accepts the value unchanged, else the first that
    accepts it."""
    texts = [m.value for m in node.members if isinstance(m, tree.LiteralType)]
    if len(texts) == len(node.members) and all(type(text) is str for text in texts):
        words = frozenset(texts)
        return lambda value, tick: value if type(value) is str and value in words else MISFIT
    members = [compile_type(member) for member in node.members]

    def fit(value: Any, tick: Tick) -> Any:
        second: Any = MISFIT
        for member in members:
            found = member(value, tick)
            if found is value:
                return found
            if second is MISFIT:
                second = found
        return second

    return fit


ColumnFit = Callable[[list[Any], Tick], list[Any] | None]
"""Returns the values to store for those of one field in many records: the same list if none
changes; None if one of them does not have the type."""


def compile_column(node: tree.FieldType) -> ColumnFit:
    """Compile a field type to the function that checks the values of many records at once."""
    fit, kept, tables = compile_type(node), _kept_classes(node), _tables_of(node)

    def fit_all(column: list[Any], tick: Tick) -> list[Any] | None:
        # Fast path: the classes of the values decide, without a call for each.
        others = set(map(type, column)) - kept
        if not others:
            return column
        if others == _LINKS and {
            value.table for value in column if type(value) is RecordId
        }.issubset(tables):
            return column
        found = [fit(value, tick) for value in column]
        return None if any(value is MISFIT for value in found) else found

    return fit_all


_LINKS: Final = {RecordId}
_EVERY: Final[frozenset[type]] = frozenset(
    {NoneValue, type(None), bool, int, float, Decimal, str, bytes, timedelta, datetime, UUID, list,
     dict, RecordId}
)  # fmt: skip


def _kept_classes(node: tree.FieldType) -> frozenset[type]:
    """Return the Python classes of which a type accepts every value unchanged."""
    found: set[type] = set()
    for part in parts_of(node):
        if isinstance(part, tree.PlainType):
            if part.kind == "any":
                return _EVERY
            found.update(_CLASSES.get(part.kind, _CONVERTED.get(part.kind, ())))
        elif isinstance(part, tree.OptionType):
            found.add(NoneValue)
        elif isinstance(part, tree.ArrayType):
            if part.most is None and part.of == tree.PlainType("any"):
                found.add(list)
        elif isinstance(part, tree.RecordType) and not part.tables:
            found.add(RecordId)
    return frozenset(found)


def _tables_of(node: tree.FieldType) -> frozenset[str]:
    """Return the tables whose records a type accepts, as far as it names them."""
    parts = [part for part in parts_of(node) if isinstance(part, tree.RecordType)]
    return frozenset(name for part in parts for name in part.tables)


RANK_OF_RECORDS: Final = rank(RecordId("t", 1))
_RANKS: Final[dict[str, int]] = {
    "bool": rank(True), "int": rank(0), "float": rank(0), "decimal": rank(0), "number": rank(0),
    "string": rank(""), "bytes": rank(b""), "duration": rank(timedelta()),
    "datetime": rank(datetime.min), "uuid": rank(UUID(int=0)), "object": rank({}),
}  # fmt: skip


def classes(node: tree.FieldType) -> frozenset[int] | None:
    """Return the ranks of the order classes that values of a type belong to; None: any class.

    The classes of NONE and NULL are left out.
    """
    found: set[int] = set()
    for part in parts_of(node):
        if isinstance(part, tree.PlainType):
            if part.kind == "any":
                return None
            found.add(_RANKS[part.kind])
        elif isinstance(part, tree.ArrayType):
            found.add(rank([]))
        elif isinstance(part, tree.RecordType):
            found.add(RANK_OF_RECORDS)
        elif isinstance(part, tree.LiteralType) and part.value is not None:
            found.add(rank(part.value))
    return frozenset(found)


def item_classes(node: tree.FieldType) -> frozenset[int] | None:
    """Return the order classes of the elements that values of a type may contain.

    None: any class. Empty: the values contain nothing.
    """
    found: frozenset[int] = frozenset()
    for part in parts_of(node):
        if isinstance(part, tree.ArrayType):
            of = classes(part.of)
            if of is None:
                return None
            found |= of
        elif isinstance(part, tree.PlainType) and part.kind == "any":
            return None
        elif (isinstance(part, tree.PlainType) and part.kind in ("string", "object")) or (
            isinstance(part, tree.LiteralType) and type(part.value) is str
        ):
            found |= {_RANKS["string"]}
    return found


def may_equal(node: tree.FieldType, value: Value, tick: Tick) -> bool:
    """True if a value may be equal to a value of a type.

    Always true for NONE and NULL, which equal an absent value, and for a type of many alternatives,
    which is not examined.
    """
    parts = _few_parts(node)
    if value is NONE or value is None or parts is None:
        return True
    return any(_part_may_equal(part, value, tick) for part in parts)


def _few_parts(node: tree.FieldType) -> list[tree.FieldType] | None:
    """Return the alternatives of a type, or None if there are more than `FEW`."""
    parts = list(islice(parts_of(node), FEW + 1))
    return parts if len(parts) <= FEW else None


def _part_may_equal(part: tree.FieldType, value: Value, tick: Tick) -> bool:
    if isinstance(part, tree.PlainType):
        if part.kind == "decimal" and type(value) is float:
            return is_worth_a_decimal(value)
        return part.kind == "any" or rank(value) == _RANKS[part.kind]
    if isinstance(part, tree.ArrayType):
        if type(value) is not list or (part.most is not None and len(value) > part.most):
            return False
        return all(may_equal(part.of, item, tick) for item in paced(value, tick))
    if isinstance(part, tree.RecordType):
        return type(value) is RecordId and (not part.tables or value.table in part.tables)
    return isinstance(part, tree.LiteralType) and equal(part.value, value, tick)


def is_worth_a_decimal(value: float) -> bool:
    """True if some decimal equals a float exactly. That of 606.88, for example, would need 46
    digits."""
    digits = "".join(map(str, Decimal(value).as_tuple().digits))
    return len(digits.strip("0")) <= limits.DECIMAL_DIGITS


def may_contain(node: tree.FieldType, value: Value, tick: Tick) -> bool:
    """True if a value of a type may contain a value, in the sense of CONTAINS. See `may_equal`."""
    parts = _few_parts(node)
    if value is NONE or value is None or parts is None:
        return True
    for part in parts:
        if isinstance(part, tree.ArrayType):
            found = may_equal(part.of, value, tick)
        else:
            held = item_classes(part)
            found = held is None or rank(value) in held
        if found:
            return True
    return False


def may_be_alike(one: tree.FieldType, other: tree.FieldType) -> bool:
    """True if values of two types whose order classes overlap may be equal.

    False for records of different tables, and for sets of literal strings without a common member.
    """
    mine, theirs = _choices(one), _choices(other)
    return mine is None or theirs is None or not mine.isdisjoint(theirs)


def _choices(node: tree.FieldType) -> frozenset[tuple[str, str]] | None:
    """Return the tables of a pure record type or the strings of a pure literal type.

    None if the type admits anything else.
    """
    found: set[tuple[str, str]] = set()
    for part in parts_of(node):
        if isinstance(part, tree.RecordType) and part.tables:
            found.update(("record", table) for table in part.tables)
        elif isinstance(part, tree.LiteralType) and type(part.value) is str:
            found.add(("text", part.value))
        elif not isinstance(part, tree.OptionType):
            return None
    return frozenset(found)


def parts_of(node: tree.FieldType) -> Iterator[tree.FieldType]:
    """Yield the alternatives of a type, including those inside options."""
    if isinstance(node, tree.UnionType):
        for member in node.members:
            yield from parts_of(member)
    elif isinstance(node, tree.OptionType):
        yield node
        yield from parts_of(node.of)
    else:
        yield node


def parts_below(node: tree.FieldType) -> tuple[tree.FieldType, ...]:
    """Return the direct component types of a type."""
    if isinstance(node, tree.UnionType):
        return node.members
    return (node.of,) if isinstance(node, tree.OptionType | tree.ArrayType) else ()


def is_option(node: tree.FieldType) -> bool:
    """True if one of a type's alternatives is an option."""
    return any(isinstance(part, tree.OptionType) for part in parts_of(node))


def may_be_absent(node: tree.FieldType) -> bool:
    """True if a type, or the items of its arrays, admit NONE or NULL."""
    for part in parts_of(node):
        if isinstance(part, tree.OptionType) or part == tree.PlainType("any"):
            return True
        if isinstance(part, tree.LiteralType) and part.value is None:
            return True
        if isinstance(part, tree.ArrayType) and may_be_absent(part.of):
            return True
    return False


def admits(node: tree.FieldType, *, items: bool) -> bool:
    """True if a value of a type may have fields; with `items`, also if it may have items."""
    for part in parts_of(node):
        if part in (tree.PlainType("any"), tree.PlainType("object")):
            return True
        if items and isinstance(part, tree.ArrayType):
            return True
    return False


def innermost(
    node: tree.FieldType, value: Any, at: str, tick: Tick
) -> tuple[tree.FieldType, Any, str]:
    """Return the type, value and path of the innermost mismatch: for an array, its first wrong
    item."""
    for part in parts_of(node):
        if not isinstance(part, tree.ArrayType) or type(value) is not list:
            continue
        if part.most is not None and len(value) > part.most:
            continue
        fit = compile_type(part.of)
        for number, item in enumerate(paced(value, tick)):
            if fit(item, tick) is MISFIT:
                return innermost(part.of, item, f"{at}[{number}]", tick)
    return node, value, at


def found_in(node: tree.FieldType, value: Any) -> str:
    """Describe the value found, for an error: its type, and more if the type alone would fit."""
    parts = list(parts_of(node))
    if type(value) is RecordId:
        return f"record<{value.table}>"
    if type(value) is list and any(isinstance(part, tree.ArrayType) for part in parts):
        return f"array of {len(value)}"
    if any(isinstance(p, tree.LiteralType) and type(p.value) is type(value) for p in parts):
        return cut(format_value(value))
    return type_name(value)


def shown(value: Any) -> str:
    """Format a value for an error message."""
    name = type_name(value)
    if type(value) in (list, dict) or value is NONE or value is None:
        return name
    return f"{name} {cut(format_value(value))}"


def cut(text: str) -> str:
    """Truncate a text to `SHOWN` characters."""
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
