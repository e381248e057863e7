"""Schema: validation of a table's records, compiled once from its field definitions.

Every statement that writes a record passes it through its table's schema before it is stored. The
order is:

1. READONLY, compared with the record before the write.
2. DEFAULT, for absent fields. It sees the record as given.
3. TYPE, and rejection of fields that SCHEMAFULL does not define.
4. VALUE, which sees the record with its DEFAULTs.
5. ASSERT, which sees the record to be stored.

A field defined below another, `a.b`, makes `a` an object, even if `a` is not defined. An absent `a`
that is undefined, or defined as a plain object, is created if a field below it has a DEFAULT or a
VALUE. It is rejected if a field below it is required.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol

from language import tree
from language.budget import bounded
from language.compile import Compiled
from language.confined import holds_link
from language.env import Env
from language.error_places import add_remark
from language.fieldtypes import (
    MISFIT,
    RANK_OF_RECORDS,
    admits,
    classes,
    cut,
    found_in,
    innermost,
    is_option,
    parts_of,
    shown,
)
from language.printing import print_type
from language.rules import Rule
from protocol.errors import (
    FROM_OUTSIDE,
    AssertFailed,
    BadRequest,
    Cancelled,
    Conflict,
    FieldRefused,
    Refusal,
    StatementTimeout,
    TypeRefused,
)
from protocol.paths import EACH, Path, path_text
from protocol.text import format_value, quote_name
from protocol.values import (
    NONE,
    RecordId,
    check,
    identical,
    paced,
    present_fields,
    rank,
    type_name,
    without_none,
)


@dataclass(slots=True)
class _Node:
    """Node of the tree of field paths: the field defined there, if any, and the fields below it."""

    text: str = ""
    """Name as shown in a path."""
    rule: Rule | None = None
    names: dict[str, _Node] = field(default_factory=dict)
    each: _Node | None = None
    guards: bool = False
    """True if a READONLY field is below it."""
    computes: bool = False
    """True if it or a field below it has a VALUE."""
    looks: bool = False
    """True if the rules of it, or of a field below it, depend on other fields of the record."""
    simple: bool = False
    """True if it is a field with only a type and an optional ASSERT, as most fields are."""
    is_column: bool = False
    """True if the value in a new record depends on no other field: nothing is below it, and it has
    no VALUE."""


def _rule_of(node: _Node) -> Rule:
    """Return the definition of a field that is checked by column."""
    assert node.rule is not None, "a column is a field"
    return node.rule


@dataclass(slots=True)
class _ColumnChecks:
    """Checks of some new records that come once all their fields have values."""

    asserted: list[tuple[Rule, list[Any]]] = field(default_factory=list)
    """Fields with ASSERT, and their values."""
    deepened: bool = False
    """True if a DEFAULT has made values with parts."""


class Schema:
    """The fields of one table.

    :param schemafull: True if a record may have only defined fields. Below a field whose type
        admits any content, fields are unrestricted unless one is defined there.
    :raises BadRequest: a field cannot be below another of that type
    """

    def __init__(self, table: str, rules: Iterable[Rule], schemafull: bool) -> None:
        self.table = table
        self.schemafull = schemafull
        self.defaults_read = False
        """True if a DEFAULT reads the record."""
        self.types: dict[Path, tree.FieldType] = {}
        """Types of the fields, by the names in their paths: an item has the path of its array."""
        self._root = _Node()
        for rule in rules:
            self._add(rule)
        _complete(self._root, ())
        self.by_column = (
            not self.defaults_read
            and self._root.each is None
            and all(node.is_column for node in self._root.names.values())
        )
        """True if new records are checked field by field. Values inside their fields then stay as
        they are."""
        self.changes_by_column = self.by_column and not any(
            node.rule is not None and node.rule.readonly for node in self._root.names.values()
        )
        """True if changed records are checked as new ones are, by column."""

    def _add(self, rule: Rule) -> None:
        names = tuple(step for step in rule.path if step is not EACH)
        if names not in self.types or holds_link(rule.type):
            self.types[names] = rule.type
        node = self._root
        for step in rule.path:
            node.guards = node.guards or rule.readonly
            node.computes = node.computes or rule.value is not None
            node.looks = node.looks or rule.looks
            if step is EACH:
                node.each = node = node.each or _Node()
            else:
                name = str(step)
                node = node.names.setdefault(name, _Node(quote_name(name)))
        self.defaults_read = self.defaults_read or rule.default_reads
        node.computes = node.computes or rule.value is not None
        node.looks = node.looks or rule.looks
        node.rule = rule

    def type_at(self, path: Path) -> tree.FieldType | None:
        """Return the type of the values at a path.

        None if no type is defined there, or if the path may lead over a record link. After `[*]`
        the result is an array of the items' values there, and only names may follow. A value after
        an array step may be absent.
        """
        node: _Node | None = self._root
        kind: tree.FieldType | None = tree.PlainType("object")
        each = absent = False
        for step in path:
            if type(step) is str:
                below = None if node is None else node.names.get(step)
                if node is None or below is None or not _is_object(node, kind):
                    return None
                node, kind = below, None if below.rule is None else below.rule.type
            else:
                kind = None if each or kind is None else _item_of(kind)
                if kind is None:
                    return None
                absent, each = True, step is EACH
                node = None if node is None else node.each
                if node is not None and node.rule is not None:
                    kind = node.rule.type
        if kind is None:
            return None
        if each:
            kind = tree.ArrayType(kind)
        return tree.OptionType(kind) if absent and not is_option(kind) else kind

    def conform(
        self,
        record: RecordId,
        fields: dict[str, Any],
        before: dict[str, Any] | None,
        env: FieldEnv,
        *,
        replaced: bool = False,
    ) -> dict[str, Any]:
        """Validate and complete a record to be stored; changes `fields` in place.

        :param fields: checked, without `id`, owned by the caller alone
        :param before: the record before the write; None if it is new
        :param replaced: True if CONTENT replaces the record: a READONLY field that is left out is
            kept

        :raises TypeRefused, AssertFailed, FieldRefused: with table, field, wanted and found
        """
        writing = _Writing(self, record, fields, env, replaced)
        writing.object(self._root, fields, before, before is None, "", closed=self.schemafull)
        if self._root.computes:
            writing.compute(self._root, fields, before, before is None, "")
        writing.finish()
        return fields

    def conform_new(self, ids: Sequence[Any], rows: list[dict[str, Any]], env: FieldEnv) -> bool:
        """Validate and complete many records to be created, as `conform` does for each. Return
        False if one of them is refused; then `conform` tells which and why.

        :param ids: at least one
        :param rows: as `fields` of `conform`; by column, only the objects themselves are owned.
            Half changed if one is refused
        """
        try:
            if self.by_column:
                return self._conform_columns(ids, rows, env)
            for id, fields in zip(ids, rows, strict=True):
                self.conform(RecordId(self.table, id), fields, None, env)
        except (*FROM_OUTSIDE, Conflict):
            raise
        except Refusal:
            return False
        return True

    def _conform_columns(
        self, ids: Sequence[Any], rows: list[dict[str, Any]], env: FieldEnv
    ) -> bool:
        names = self._root.names
        checks = _ColumnChecks()
        for name, node in names.items():
            env.tick()
            given = [fields.get(name, NONE) for fields in rows]
            fitted = self._fitted(node, ids, given, checks, env)
            if fitted is None:
                return False
            if fitted is not given:
                for fields, value in zip(rows, fitted, strict=True):
                    if value is not NONE:
                        fields[name] = value
        if self.schemafull and not set().union(*rows) <= names.keys():
            return False
        return self._pass(ids, rows, checks, env)

    def conform_columns(
        self,
        ids: Sequence[Any],
        columns: dict[str, list[Any]],
        made: Callable[[dict[str, list[Any]]], list[dict[str, Any]]],
        env: FieldEnv,
    ) -> dict[str, list[Any]] | None:
        """Return the columns of new records that are given by column, as `conform_new` does for
        rows. Return None if one of them is refused. Only with `by_column`.

        :param columns: a value for each id, NONE where it is absent; left as they are
        :param made: makes rows of columns
        """
        names = self._root.names
        checks = _ColumnChecks()
        found = columns.copy()
        try:
            for name, node in names.items():
                env.tick()
                given = columns.get(name) or [NONE] * len(ids)
                fitted = self._fitted(node, ids, given, checks, env)
                if fitted is None:
                    return None
                if name in columns or _rule_of(node).default is not None:
                    found[name] = fitted
            if self.schemafull and not found.keys() <= names.keys():
                return None
            # Only these checks look at rows.
            if checks.asserted or checks.deepened:
                return found if self._pass(ids, made(found), checks, env) else None
            return found
        except (*FROM_OUTSIDE, Conflict):
            raise
        except Refusal:
            return None

    def _fitted(
        self,
        node: _Node,
        ids: Sequence[Any],
        given: list[Any],
        checks: _ColumnChecks,
        env: FieldEnv,
    ) -> list[Any] | None:
        """Return the values to store of one field: the same list if none changes; None if one does
        not have the type. Collects what is to be checked later."""
        rule = _rule_of(node)
        column = given
        if rule.default is not None and any(value is NONE for value in given):
            writing = _Writing(self, RecordId(self.table, ids[0]), {}, env, False)
            column = [
                writing.made(rule.default, _NO_ROW, env, "DEFAULT", node.text)
                if value is NONE
                else value
                for value in given
            ]
            checks.deepened = checks.deepened or writing.deepened
        fitted = rule.fit_column(column, env.tick)
        if fitted is not None and rule.assertion is not None:
            checks.asserted.append((rule, fitted))
        return fitted

    def _pass(
        self,
        ids: Sequence[Any],
        rows: list[dict[str, Any]],
        checks: _ColumnChecks,
        env: FieldEnv,
    ) -> bool:
        """Return True if records with all their fields pass what was collected."""
        if checks.deepened:
            for fields in rows:
                check(fields, 0, env.tick)
        return not checks.asserted or self._hold(ids, rows, checks.asserted, env)

    def _hold(
        self,
        ids: Sequence[Any],
        rows: list[dict[str, Any]],
        asserted: list[tuple[Rule, list[Any]]],
        env: FieldEnv,
    ) -> bool:
        """Return True if the ASSERTs of all records hold."""
        whole = [
            {"id": RecordId(self.table, id), **present_fields(fields)}
            for id, fields in zip(ids, rows, strict=True)
        ]
        for rule, column in asserted:
            assert rule.assertion is not None
            for row, value in zip(whole, column, strict=True):
                env.tick()
                if (value is not NONE or not rule.may_be_none) and not rule.assertion(
                    row, env.of_value(value)
                ):
                    return False
        return True

    def conform_below(
        self, name: str, record: RecordId, fields: dict[str, Any], env: FieldEnv
    ) -> None:
        """Validate one top-level field of a stored record, as `conform` does, and ignore the
        others.

        If the field is computed, or its ASSERTs read other fields, the whole record is validated as
        its next write would do it, with DEFAULTs and VALUEs. A record that such a write would
        reject is rejected.
        """
        node = self._root.names.get(name)
        if node is None:
            return
        if node.looks:
            self.conform(record, fields, None, env)
            return
        writing = _Writing(self, record, fields, env, replaced=False)
        writing.put(node, fields, name, NONE, True, quote_name(name))
        writing.finish()


def _is_object(node: _Node, kind: tree.FieldType | None) -> bool:
    """True if a step by name from a field of this type leads into an object or to NONE."""
    if kind is None:
        return node.each is None
    held = classes(kind)
    return held is not None and held.isdisjoint((rank([]), RANK_OF_RECORDS))


def _item_of(kind: tree.FieldType) -> tree.FieldType | None:
    """Return the item type of a type's arrays; None if it admits more than arrays of one type."""
    parts = [part for part in parts_of(kind) if not isinstance(part, tree.OptionType)]
    only = parts[0] if len(parts) == 1 else None
    return only.of if isinstance(only, tree.ArrayType) else None


def _complete(node: _Node, path: Path) -> None:
    """Check a node against the nodes below it, recursively. Sets `simple`."""
    if node.rule is not None:
        below_it = bool(node.names) or node.each is not None
        node.is_column = not (below_it or node.computes)
        node.simple = not (
            below_it or node.computes or node.rule.readonly or node.rule.default is not None
        )
        wanted = print_type(node.rule.type)
        below = next(iter(node.names), None)
        if below is not None and not admits(node.rule.type, items=False):
            raise BadRequest(
                f"{path_text(path)} is {wanted}, which has no field {quote_name(below)}"
            )
        if node.each is not None and not admits(node.rule.type, items=True):
            raise BadRequest(f"{path_text(path)} is {wanted}, which has no items")
    for name, child in node.names.items():
        _complete(child, (*path, name))
    if node.each is not None:
        _complete(node.each, (*path, EACH))


class FieldEnv(Env, Protocol):
    """Evaluation environment of DEFAULT, VALUE and ASSERT."""

    def of_value(self, value: Any) -> Env:
        """Return the same environment with `$value` bound."""


_NO_ROW: Final[dict[str, Any]] = {}


def _below(at: str, text: str) -> str:
    return f"{at}.{text}" if at else text


class _Writing:
    """Validation of one record by a schema."""

    __slots__ = (
        "_asserts",
        "_computed_of",
        "_env",
        "_fields",
        "_given",
        "_record",
        "_replaced",
        "_schema",
        "deepened",
    )

    def __init__(
        self, schema: Schema, record: RecordId, fields: dict[str, Any], env: FieldEnv,
        replaced: bool,
    ) -> None:  # fmt: skip
        self._schema = schema
        self._record = record
        self._fields = fields
        self._env = env
        self._replaced = replaced
        # A copy to the depth: fields are changed in place from here on.
        self._given = {"id": record, **without_none(fields)} if schema.defaults_read else _NO_ROW
        self._asserts: list[tuple[Rule, str, Any]] = []
        self.deepened = False
        self._computed_of: dict[str, Any] | None = None
        """Record that VALUE sees; None in the phases before VALUE."""

    def object(
        self, node: _Node, value: dict[str, Any], known: Any, new: bool, at: str, *, closed: bool
    ) -> None:
        """Validate the fields of an object. `known` is the value stored here before."""
        tick = self._env.tick
        for name, child in node.names.items():
            rule = child.rule
            if child.simple and rule is not None:
                given = value.get(name, NONE)
                found = rule.fit(given, tick)
                if found is not given:
                    if found is MISFIT:
                        self._refuse_type(rule.type, given, _below(at, child.text))
                    value[name] = found
                if rule.assertion is not None:
                    self._ask(rule, found, _below(at, child.text))
                continue
            was = known.get(name, NONE) if type(known) is dict else NONE
            self.put(child, value, name, was, new, _below(at, child.text))
        if node.each is not None:
            for name in paced([name for name in value if name not in node.names], tick):
                was = known.get(name, NONE) if type(known) is dict else NONE
                path = _below(at, quote_name(name))
                self.put(node.each, value, name, was, new or was is NONE, path)
        elif closed and not value.keys() <= node.names.keys():
            self._refuse_undefined(node, value, at)

    def _items(self, each: _Node, value: list[Any], known: Any, new: bool, at: str) -> None:
        for number in paced(range(len(value)), self._env.tick):
            has = type(known) is list and number < len(known)
            was = known[number] if has else NONE
            self.put(each, value, number, was, new or not has, f"{at}[{number}]")

    def put(self, node: _Node, holder: Any, key: Any, known: Any, new: bool, at: str) -> None:
        """Validate the value at a key of an object or array. `new`: no value was here before."""
        given = holder.get(key, NONE) if type(holder) is dict else holder[key]
        rule, tick = node.rule, self._env.tick
        if rule is not None and rule.value is not None and self._computed_of is None:
            return
        found = given
        made = False
        if rule is not None:
            if rule.readonly and not new:
                if given is NONE and self._replaced:
                    found = known
                elif not identical(given, known, tick) and not identical(
                    rule.fit(given, tick), known, tick
                ):
                    self._refuse_change(at, given, known)
            if found is NONE and rule.default is not None:
                found = self.made(rule.default, self._given, self._env, "DEFAULT", at)
            if rule.value is not None:
                found = self.made(
                    rule.value, self._computed_of, self._env.of_value(found), "VALUE", at
                )
            fitted = rule.fit(found, tick)
            if fitted is MISFIT:
                made = found is NONE and bool(node.names) and rule.fit({}, tick) is not MISFIT
                if not made:
                    self._refuse_type(rule.type, found, at)
                fitted = {}
            found = fitted
        if node.names or node.each is not None:
            if node.guards and not new and type(found) is not dict and type(known) is dict:
                if found is NONE and self._replaced:
                    found = self._inside(node, {}, known, new, at) or NONE
                else:
                    self._check_kept(node, known, at)
            found = self._inside(node, found, known, new, at)
            if made and not found and rule is not None and not node.computes:
                self._refuse_type(rule.type, NONE, at)
        if rule is not None and rule.assertion is not None:
            self._ask(rule, found, at)
        if found is NONE and type(holder) is dict:
            holder.pop(key, None)
        elif found is not given:
            holder[key] = found

    def compute(self, node: _Node, value: Any, known: Any, new: bool, at: str) -> None:
        """Compute every VALUE in an object or array that has passed the earlier checks."""
        if self._computed_of is None:
            self._computed_of = {"id": self._record, **self._fields}
        if type(value) is list:
            if node.each is not None:
                self._compute_items(node.each, value, known, new, at)
            return
        for name, child in node.names.items():
            if child.computes:
                was = known.get(name, NONE) if type(known) is dict else NONE
                self._compute_at(child, value, name, was, new, _below(at, child.text))
        if node.each is not None and node.each.computes:
            tick = self._env.tick
            for name in paced([name for name in value if name not in node.names], tick):
                was = known.get(name, NONE) if type(known) is dict else NONE
                path = _below(at, quote_name(name))
                self._compute_at(node.each, value, name, was, new or was is NONE, path)

    def _compute_items(self, each: _Node, value: list[Any], known: Any, new: bool, at: str) -> None:
        if not each.computes:
            return
        for number in paced(range(len(value)), self._env.tick):
            has = type(known) is list and number < len(known)
            was = known[number] if has else NONE
            self._compute_at(each, value, number, was, new or not has, f"{at}[{number}]")
        value[:] = [item for item in value if item is not NONE]

    def _compute_at(
        self, node: _Node, holder: Any, key: Any, known: Any, new: bool, at: str
    ) -> None:
        """Compute VALUEs at a key of an object or array; see `put`."""
        if node.rule is not None and node.rule.value is not None:
            self.put(node, holder, key, known, new, at)
            return
        found = holder.get(key, NONE) if type(holder) is dict else holder[key]
        if type(found) is dict or type(found) is list:
            self.compute(node, found, known, new, at)
        elif found is NONE and node.rule is None and node.names:
            made: dict[str, Any] = {}
            self.compute(node, made, known, new, at)
            if made:
                holder[key] = made

    def _ask(self, rule: Rule, value: Any, at: str) -> None:
        """Defer the ASSERT of a value to `finish`."""
        if value is not NONE or not rule.may_be_none:
            self._asserts.append((rule, at, value))

    def _inside(self, node: _Node, found: Any, known: Any, new: bool, at: str) -> Any:
        closed = self._schema.schemafull
        if type(found) is dict:
            self.object(node, found, known, new, at, closed=closed)
        elif type(found) is list and node.each is not None:
            self._items(node.each, found, known, new, at)
        elif node.rule is None:
            if found is not NONE:
                wanted = "array" if node.each is not None and not node.names else "object"
                self._refuse(TypeRefused, at, wanted, found, type_name(found))
            made: dict[str, Any] = {}
            self.object(node, made, known, new, at, closed=closed)
            return made or NONE
        return found

    def _check_kept(self, node: _Node, known: Any, at: str) -> None:
        """Check that a removed object holds no READONLY value."""
        for name, child in node.names.items():
            was = known.get(name, NONE) if type(known) is dict else NONE
            if was is not NONE:
                path = f"{at}.{child.text}"
                if child.rule is not None and child.rule.readonly:
                    self._refuse_change(path, NONE, was)
                self._check_kept(child, was, path)

    def made(self, compute: Compiled, row: Any, env: Env, word: str, at: str) -> Any:
        """Evaluate a DEFAULT or VALUE for a record."""
        try:
            value = bounded(compute(row, env))
        except Refusal as refusal:
            self._place(refusal, word, at)
            raise
        if value is NONE:
            return value
        check(value)
        if type(value) is dict or type(value) is list:
            self.deepened = True
            # What is computed may be a constant of the definition, and is changed in place here.
            return without_none({"": value})[""]
        return value

    def finish(self) -> None:
        """Check the deferred ASSERTs against the record to be stored."""
        if self.deepened:
            check(self._fields)
        if not self._asserts:
            return
        row = {"id": self._record, **self._fields}
        for rule, at, value in self._asserts:
            assert rule.assertion is not None
            try:
                holds = rule.assertion(row, self._env.of_value(value))
            except Refusal as refusal:
                self._place(refusal, "ASSERT", at)
                raise
            if not holds:
                self._refuse(AssertFailed, at, rule.assertion_text, value, cut(format_value(value)))

    # --- refusing ---------------------------------------------------------------------------------

    def _place(self, refusal: Refusal, word: str, at: str) -> None:
        """Add table, field and clause to an error of an expression."""
        if not refusal.retry and not isinstance(refusal, Cancelled | StatementTimeout):
            refusal.detail.update(table=self._schema.table, field=at)
            add_remark(refusal, f"{word} of {self._schema.table}.{at}")
            refusal.offset = None  # it was an offset in the text of the definition

    def _refuse_type(self, node: tree.FieldType, value: Any, at: str) -> NoReturn:
        node, value, at = innermost(node, value, at, self._env.tick)
        self._refuse(TypeRefused, at, cut(print_type(node)), value, found_in(node, value))

    def _refuse_change(self, at: str, given: Any, known: Any) -> NoReturn:
        table = self._schema.table
        raise FieldRefused(
            f"{table}.{at} is READONLY: it is {shown(known)} and can't become {shown(given)}",
            table=table,
            field=at,
            wanted=cut(format_value(known)),
            found=cut(format_value(given)),
        )

    def _refuse_undefined(self, node: _Node, value: dict[str, Any], at: str) -> None:
        table = self._schema.table
        for name, item in value.items():
            if name not in node.names:
                path = _below(at, quote_name(name))
                wanted = cut(", ".join(map(quote_name, node.names)))
                raise FieldRefused(
                    f"{table} is SCHEMAFULL and defines no field {cut(path)}"
                    f"{': only ' + wanted if wanted else ''}",
                    table=table,
                    field=cut(path),
                    wanted=wanted,
                    found=type_name(item),
                )

    def _refuse(
        self, error: type[Refusal], at: str, wanted: str, value: Any, found: str
    ) -> NoReturn:
        table = self._schema.table
        if error is AssertFailed:
            problem = f"{table}.{at} is {shown(value)}, which fails ASSERT {wanted}"
        else:
            what = found if type(value) is list else shown(value)
            problem = f"{table}.{at} takes {wanted}, not {what}"
        raise error(
            problem,
            table=table,
            field=at,
            wanted=wanted,
            found=found,
        )
