"""Tree to text. What is printed parses back to the same tree.

Parentheses stand only where the text would otherwise be read as another tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from language import tree
from language.parsing.expressions import (
    COMPARISON,
    LEVELS,
    RANGE,
    operands_of,
)
from language.words import KEYWORDS, quote
from protocol import limits
from protocol.paths import Path, path_text
from protocol.text import NAME, format_duration, format_size, format_value, quote_string

_UNARY: Final = 9
_PREFIX_NOT: Final = 3
_STEPPED: Final = (
    tree.Name, tree.Parameter, tree.Call, tree.Subquery, tree.Array, tree.Object,
    tree.RecordLiteral, tree.Attribute, tree.Index, tree.Each,
)  # fmt: skip
"""What a path may begin with bare."""


def print_script(script: tree.Script) -> str:
    """The text of a script, a statement a line."""
    return ";\n".join(map(print_statement, script.statements))


def redacted(statement: tree.Statement) -> str:
    """The text of a statement as logs and lists show it: passwords and hashes as `'...'`."""
    if isinstance(statement, tree.DefineUser):
        hidden = {"password": "..."} if statement.password is not None else {"passhash": "..."}
        return print_statement(replace(statement, **hidden))  # type: ignore[arg-type]
    if isinstance(statement, tree.AlterUser) and statement.password is not None:
        return print_statement(replace(statement, password="..."))
    if isinstance(statement, tree.If):
        return _if(statement, redacted)
    if isinstance(statement, tree.For):
        return _for(statement, redacted)
    if isinstance(statement, tree.Let | tree.ReturnStatement) and isinstance(
        statement.value, tree.If
    ):
        word = f"LET ${statement.name} =" if isinstance(statement, tree.Let) else "RETURN"
        return f"{word} {_if(statement.value, redacted)}"
    return print_statement(statement)


# --- expressions ----------------------------------------------------------------------------------


def print_expression(node: tree.Expression) -> str:
    """The text of an expression."""
    return _PRINTERS[type(node)](node)  # type: ignore[no-any-return]


def _level(node: tree.Expression) -> int:
    if isinstance(node, tree.Binary):
        return LEVELS[node.operator]
    if isinstance(node, tree.Range):
        return RANGE
    if isinstance(node, tree.Unary):
        return _PREFIX_NOT if node.operator == "NOT" else _UNARY
    return 10


def _at_least(node: tree.Expression, level: int) -> str:
    text = print_expression(node)
    return text if _level(node) >= level else f"({text})"


def _binary(node: tree.Binary) -> str:
    level = LEVELS[node.operator]
    if node.operator in ("OR", "AND"):
        parts = operands_of(node, node.operator)
        return f" {node.operator} ".join(_at_least(part, level + 1) for part in parts)
    left = _at_least(node.left, level + 1 if level == COMPARISON else level)
    return f"{left} {node.operator} {_at_least(node.right, level + 1)}"


def _range(node: tree.Range) -> str:
    dots = "..=" if node.inclusive else ".."
    return f"{_at_least(node.low, RANGE + 1)} {dots} {_at_least(node.high, RANGE + 1)}"


def _unary(node: tree.Unary) -> str:
    if node.operator == "NOT":
        return f"NOT {_at_least(node.operand, COMPARISON)}"
    text = print_expression(node.operand)
    # A sign before a digit would become part of the literal, and two minus signs a comment.
    bare = isinstance(node.operand, _STEPPED) and not (text[0].isdigit() or text[0] in "-+")
    return f"{node.operator}{text}" if bare else f"{node.operator}({text})"


def _base(node: tree.Expression) -> str:
    text = print_expression(node)
    return text if isinstance(node, _STEPPED) else f"({text})"


def _index(node: tree.Index) -> str:
    return f"{_base(node.of)}[{print_expression(node.index)}]"


def _array(node: tree.Array) -> str:
    return f"[{', '.join(map(print_expression, node.items))}]"


def _object(node: tree.Object) -> str:
    if not node.fields:
        return "{}"
    fields = (f"{_key(name)}: {print_expression(value)}" for name, value in node.fields)
    return f"{{ {', '.join(fields)} }}"


def _key(name: str) -> str:
    return name if NAME.match(name) and "-" not in name else quote_string(name)


def _record(node: tree.RecordLiteral) -> str:
    return f"{quote(node.table)}:{_identity(node.id)}"


def _identity(node: tree.Expression) -> str:
    if isinstance(node, tree.Constant) and isinstance(node.value, str):
        return quote(node.value)
    return print_expression(node)


def _call(node: tree.Call) -> str:
    return f"{node.name}({', '.join(map(print_expression, node.arguments))})"


_PRINTERS: Final[dict[type, Any]] = {
    tree.Constant: lambda node: format_value(node.value),
    tree.Parameter: lambda node: f"${node.name}",
    tree.Array: _array,
    tree.Object: _object,
    tree.RecordLiteral: _record,
    tree.Name: lambda node: quote(node.name),
    tree.Attribute: lambda node: f"{_base(node.of)}.{quote(node.name)}",
    tree.Index: _index,
    tree.Each: lambda node: f"{_base(node.of)}[*]",
    tree.Unary: _unary,
    tree.Binary: _binary,
    tree.Range: _range,
    tree.Call: _call,
    tree.Subquery: lambda node: f"({_select(node.select)})",
}


def print_path(path: Path) -> str:
    """The text of a field's path."""
    return path_text(path, KEYWORDS)


# --- statements on records ------------------------------------------------------------------------


def print_statement(statement: tree.Statement) -> str:
    """The text of a statement, without the `;` after it. Shows passwords: see `redacted`."""
    return _STATEMENTS[type(statement)](statement)  # type: ignore[no-any-return]


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _clause(word: str, node: tree.Expression | None) -> str:
    return f"{word} {print_expression(node)}" if node is not None else ""


def _target(node: tree.Target) -> str:
    if isinstance(node, tree.TableTarget):
        return quote(node.table)
    if isinstance(node, tree.RecordRange):
        low = "" if node.low is None else _identity(node.low)
        high = "" if node.high is None else _identity(node.high)
        return f"{quote(node.table)}:{low}{'..=' if node.inclusive else '..'}{high}"
    # A bare name would be a table, and a sign or an operator is not read here.
    text = print_expression(node.expression)
    bare = isinstance(node.expression, _STEPPED) and not _begins_with_name(node.expression)
    return text if bare else f"({text})"


def _begins_with_name(node: tree.Expression) -> bool:
    while isinstance(node, tree.Attribute | tree.Index | tree.Each):
        node = node.of
    return isinstance(node, tree.Name)


def _column(node: tree.Column) -> str:
    text = print_expression(node.expression)
    return text if node.alias is None else f"{text} AS {quote(node.alias)}"


def _columns(columns: tuple[tree.Column, ...]) -> str:
    return ", ".join(map(_column, columns))


def _paths(word: str, paths: tuple[Path, ...]) -> str:
    return f"{word} {', '.join(map(print_path, paths))}" if paths else ""


def _timeout(node: Any) -> str:
    return "" if node.timeout is None else f"TIMEOUT {format_duration(node.timeout)}"


def _group(group: tuple[tree.Expression, ...] | None) -> str:
    if group is None:
        return ""
    return f"GROUP BY {', '.join(map(print_expression, group))}" if group else "GROUP ALL"


def _order(order: tuple[tree.Order, ...]) -> str:
    if not order:
        return ""
    parts = (print_expression(o.expression) + (" DESC" if o.descending else "") for o in order)
    return f"ORDER BY {', '.join(parts)}"


def _select(node: tree.Select) -> str:
    shown = ["*"] if node.everything else []
    if node.columns:
        shown.append(_columns(node.columns))
    return _join(
        "SELECT VALUE" if node.value else "SELECT",
        ", ".join(shown),
        _paths("OMIT", node.omit),
        f"FROM {', '.join(map(_target, node.sources))}",
        _clause("WHERE", node.where),
        f"SPLIT {print_path(node.split)}" if node.split is not None else "",
        _group(node.group),
        _clause("HAVING", node.having),
        _order(node.order),
        _clause("LIMIT", node.limit),
        _clause("START", node.start),
        _paths("FETCH", node.fetch),
        _timeout(node),
    )


def _data(node: tree.Data | None) -> str:
    if node is None:
        return ""
    if isinstance(node, tree.Set):
        pairs = (f"{print_path(path)} = {print_expression(e)}" for path, e in node.assignments)
        return f"SET {', '.join(pairs)}"
    if isinstance(node, tree.Unset):
        return _paths("UNSET", node.paths)
    word = "CONTENT" if isinstance(node, tree.Content) else "MERGE"
    return f"{word} {print_expression(node.value)}"


def _returning(node: tree.Return | None) -> str:
    if node is None:
        return ""
    if node.kind != "FIELDS":
        return f"RETURN {node.kind}"
    text = _columns(node.columns)
    if text.startswith("NONE"):
        # The constant begins the first column: bare it would ask for no answer.
        first = len(print_expression(node.columns[0].expression))
        text = f"({text[:first]}){text[first:]}"
    return f"RETURN {text}"


def _write(word: str, node: Any) -> str:
    return _join(
        word,
        _target(node.target),
        _data(getattr(node, "data", None)),
        _clause("WHERE", getattr(node, "where", None)),
        _returning(node.returning),
        _timeout(node),
    )


def _insert(node: tree.Insert) -> str:
    return _join(
        f"INSERT INTO {quote(node.table)} {print_expression(node.rows)}",
        "IGNORE" if node.ignore else "",
        f"ON DUPLICATE UPDATE {_data(node.on_duplicate)}" if node.on_duplicate else "",
        _returning(node.returning),
        _timeout(node),
    )


# --- flow -----------------------------------------------------------------------------------------


def _block(block: tree.Block, show: Any) -> str:
    return f"{{ {'; '.join(map(show, block.statements))} }}" if block.statements else "{ }"


def _if(node: tree.If, show: Any) -> str:
    parts = [f"IF {print_expression(test)} {_block(block, show)}" for test, block in node.branches]
    if node.otherwise is not None:
        parts.append(_block(node.otherwise, show))
    return " ELSE ".join(parts)


def _for(node: tree.For, show: Any) -> str:
    return f"FOR ${node.variable} IN {print_expression(node.items)} {_block(node.body, show)}"


def _value(node: tree.Expression | tree.Answering) -> str:
    return print_statement(node) if type(node) in _STATEMENTS else print_expression(node)  # type: ignore[arg-type]


# --- places, users, the node ----------------------------------------------------------------------


def _text(word: str, text: str | None) -> str:
    return "" if text is None else f"{word} {quote_string(text)}"


def _names(*names: str | None) -> str:
    return ".".join(quote(name) for name in names if name is not None)


def _define_user(node: tree.DefineUser) -> str:
    kind = "NAMESPACE" if len(node.space) == 1 else "DATABASE"
    return _join(
        "DEFINE USER",
        node.exists.value,
        quote(node.name),
        f"ROLE {node.role}",
        f"ON {kind} {_names(*node.space)}" if node.space else "",
        _text("PASSWORD", node.password),
        _text("PASSHASH", node.passhash),
        _text("COMMENT", node.comment),
    )


def _alter_user(node: tree.AlterUser) -> str:
    setting = _text("PASSWORD", node.password) or f"ROLE {node.role}"
    return f"ALTER USER {quote(node.name)} SET {setting}"


def _define_node(node: tree.DefineNode) -> str:
    roles = "" if node.roles is None else f"ROLES {', '.join(node.roles) or 'NONE'}"
    addresses = ", ".join(map(quote_string, node.endpoints or ()))
    return _join("DEFINE NODE", roles, f"ENDPOINTS {addresses}" if addresses else "")


def _define(word: str, node: Any, *names: str | None) -> str:
    return _join(
        f"DEFINE {word}",
        node.exists.value,
        _names(*names),
        "SCHEMAFULL" if getattr(node, "schemafull", False) else "",
        _text("COMMENT", node.comment),
    )


def _drop(word: str, node: Any, *names: str | None) -> str:
    return _join(f"DROP {word}", _names(*names), _text("REASON", node.reason))


def _define_index(node: tree.DefineIndex) -> str:
    return _join(
        "DEFINE INDEX",
        node.exists.value,
        f"{quote(node.name)} ON {quote(node.table)}",
        _paths("FIELDS", node.fields),
        "UNIQUE" if node.unique else "",
        _text("COMMENT", node.comment),
    )


def _drop_on(word: str, node: Any) -> str:
    return _join(_on_table(f"DROP {word}", node.name, node.topic), _text("REASON", node.reason))


def _on_table(word: str, index: str, table: str) -> str:
    return f"{word} {quote(index)} ON {quote(table)}"


def _info(node: tree.Info) -> str:
    if node.subject in ("INDEX", "GROUP"):
        return _on_table(f"INFO FOR {node.subject}", *node.names)
    return _join("INFO FOR", node.subject, _names(*node.names))


def _explain(node: tree.Explain) -> str:
    return _join("EXPLAIN", "ANALYZE" if node.analyze else "", print_statement(node.statement))


def _use(node: tree.Use) -> str:
    return _join(
        "USE",
        "" if node.namespace is None else f"NAMESPACE {quote(node.namespace)}",
        "" if node.database is None else f"DATABASE {quote(node.database)}",
    )


# --- cache spaces ---------------------------------------------------------------------------------


def _define_space(node: tree.DefineSpace) -> str:
    return _join(
        "DEFINE SPACE",
        node.exists.value,
        quote(node.name),
        "" if node.expire is None else f"EXPIRE {format_duration(node.expire)}",
        _text("COMMENT", node.comment),
    )


def _of_key(word: str, node: Any) -> str:
    """`word key IN space` with the clauses that follow, in the order of the grammar."""
    key = print_expression(node.key)
    plain = isinstance(node.key, tree.Constant) and isinstance(node.key.value, str)
    bare = isinstance(node.key, _STEPPED) and not _begins_with_name(node.key)
    return _join(
        word,
        key if plain or bare else f"({key})",
        f"{'FROM' if word in ('GET', 'DELETE') else 'IN'} {quote(node.space)}",
        _clause("HOLDER", getattr(node, "holder", None)),
        _clause("EXPECT", getattr(node, "expect", None)),
        _clause("VALUE", getattr(node, "value", None)),
        _clause("BY", getattr(node, "by", None)),
        _clause("" if word == "EXPIRE" else "EXPIRE", getattr(node, "expire", None)).strip(),
        "KEEP" if getattr(node, "keep", False) else "",
        f"IF {node.when}" if getattr(node, "when", None) else "",
    )


def _list_keys(node: tree.ListKeys) -> str:
    return _join(
        f"KEYS FROM {quote(node.space)}",
        _clause("PREFIX", node.prefix),
        _clause("AFTER", node.after),
        _clause("LIMIT", node.limit),
    )


def _drop_keys(node: tree.DropKeys) -> str:
    return _join(
        f"DROP KEYS IN {quote(node.space)}",
        _clause("PREFIX", node.prefix),
        _text("REASON", node.reason),
    )


# --- topics ---------------------------------------------------------------------------------------


def _define_topic(node: tree.DefineTopic) -> str:
    return _join(
        "DEFINE TOPIC",
        node.exists.value,
        quote(node.name),
        _setting("KEEP", node.keep),
        _setting("BYTES", node.max_bytes, format_size),
        _setting("LARGEST", node.largest, format_size),
        _setting("DEDUP", node.dedup),
        "FULL REFUSE" if node.full == "REFUSE" else "",
        _text("COMMENT", node.comment),
    )


def _setting(word: str, value: Any, show: Callable[[Any], str] | None = None) -> str:
    if value is None:
        return ""
    return f"{word} {format_duration(value) if show is None else show(value)}"


_CHANGES: Final[dict[str, tuple[str, Callable[[Any], str]]]] = {
    "keep": ("KEEP", format_duration),
    "max_bytes": ("BYTES", format_size),
    "largest": ("LARGEST", format_size),
    "dedup": ("DEDUP", format_duration),
    "full": ("FULL", str),
    "comment": ("COMMENT", quote_string),
    "deadline": ("DEADLINE", format_duration),
    "in_flight": ("IN FLIGHT", str),
    "deliveries": ("DELIVERIES", str),
    "dead_letter": ("DEAD LETTER", quote),
    "backoff": ("BACKOFF", lambda steps: ", ".join(map(format_duration, steps))),
}
"""The words of a setting, and how its value is written."""


def _changes(changes: Iterable[tuple[str, Any]]) -> Iterator[str]:
    for name, value in changes:
        words, show = _CHANGES[name]
        yield f"{words} {'NONE' if value is None or value == () else show(value)}"


def _alter_topic(node: tree.AlterTopic) -> str:
    return f"ALTER TOPIC {quote(node.name)} SET {', '.join(_changes(node.changes))}"


def _trim_topic(node: tree.TrimTopic) -> str:
    return _join(
        f"TRIM TOPIC {quote(node.name)}",
        _clause("BEFORE", node.before),
        _text("REASON", node.reason),
    )


def _position(node: tree.Position) -> str:
    if node.value is None:
        return node.kind
    text = print_expression(node.value)
    if node.kind == "TIME":
        return f"TIME {text}"
    # A field's name bare might be one of the words above.
    return f"({text})" if isinstance(_first(node.value), tree.Name) else text


def _stand(word: str, position: tree.Position | None) -> str:
    return "" if position is None else f"{word} {_position(position)}"


def _define_reader(node: tree.DefineReader) -> str:
    return _join(
        "DEFINE READER",
        node.exists.value,
        f"{quote(node.name)} ON {quote(node.topic)}",
        _stand("AT", node.position),
    )


def _alter_reader(node: tree.AlterReader) -> str:
    return _join(
        _on_table("ALTER READER", node.name, node.topic),
        _stand("SET POSITION", node.position),
        _text("REASON", node.reason),
    )


def _define_group(node: tree.DefineGroup) -> str:
    given = [(name, getattr(node, name)) for name in ("in_flight", "deliveries", "dead_letter")]
    given.append(("backoff", node.backoff or None))
    return _join(
        "DEFINE GROUP",
        node.exists.value,
        f"{quote(node.name)} ON {quote(node.topic)} DEADLINE {format_duration(node.deadline)}",
        *_changes((name, value) for name, value in given if value is not None),
        "ORDERED BY KEY" if node.ordered else "",
        _stand("AT", node.position),
    )


def _alter_group(node: tree.AlterGroup) -> str:
    moved = [] if node.position is None else [_stand("POSITION", node.position)]
    return _join(
        _on_table("ALTER GROUP", node.name, node.topic),
        f"SET {', '.join([*moved, *_changes(node.changes)])}",
        _text("REASON", node.reason),
    )


def _publish(node: tree.Publish) -> str:
    return _join(
        f"PUBLISH INTO {quote(node.topic)}",
        _clause("VALUES" if node.many else "VALUE", node.value),
        _clause("KEY", node.key),
        _clause("ID", node.id),
        _clause("HEADERS", node.headers),
        _clause("DELAY", node.delay),
        _clause("AT", node.at_time),
        _clause("EXPECT", node.expect),
    )


def _read_topic(node: tree.ReadTopic) -> str:
    return _join(
        f"READ FROM {quote(node.topic)}",
        _clause("AFTER", node.after),
        "" if node.reader is None else f"AS {quote(node.reader)}",
        _clause("LIMIT", node.limit),
        _clause("WAIT", node.wait),
    )


def _take(node: tree.Take) -> str:
    return _join(
        "TAKE",
        "" if node.count is None else print_expression(node.count),
        f"FROM {quote(node.topic)} AS {quote(node.group)}",
        _clause("MEMBER", node.member),
        _clause("WAIT", node.wait),
    )


def _settled(word: str, node: Any) -> str:
    """What is said of messages that were taken."""
    return _join(
        f"{word} {quote(node.topic)} AS {quote(node.group)}",
        _clause("RECEIPTS", node.receipts),
        _clause("BY", getattr(node, "by", None)),
        _clause("DELAY", getattr(node, "delay", None)),
        _clause("ERROR", getattr(node, "error", None)),
    )


def _redrive(node: tree.Redrive) -> str:
    return _join(
        f"REDRIVE FROM {quote(node.dead)} TO {quote(node.topic)}", _clause("LIMIT", node.limit)
    )


# --- fields ---------------------------------------------------------------------------------------


def print_type(node: tree.FieldType) -> str:
    """The text of a field's type."""
    return _TYPES[type(node)](node)  # type: ignore[no-any-return]


def _array_type(node: tree.ArrayType) -> str:
    if node.most is None:
        return "array" if node.of == tree.PlainType("any") else f"array<{print_type(node.of)}>"
    return f"array<{print_type(node.of)}, {node.most}>"


def _record_type(node: tree.RecordType) -> str:
    return f"record<{' | '.join(map(quote, node.tables))}>" if node.tables else "record"


_TYPES: Final[dict[type, Any]] = {
    tree.PlainType: lambda node: node.kind,
    tree.OptionType: lambda node: f"option<{print_type(node.of)}>",
    tree.ArrayType: _array_type,
    tree.RecordType: _record_type,
    tree.LiteralType: lambda node: format_value(node.value),
    tree.UnionType: lambda node: " | ".join(map(print_type, node.members)),
}


def _define_field(node: tree.DefineField) -> str:
    return _join(
        "DEFINE FIELD",
        node.exists.value,
        f"{print_path(node.path)} ON {quote(node.table)} TYPE {print_type(node.type)}",
        _clause("DEFAULT", node.default),
        _clause("ASSERT", node.assertion),
        "READONLY" if node.readonly else "",
        _text("COMMENT", node.comment),
    )


def _alter_field(node: tree.AlterField) -> str:
    return _join(
        f"ALTER FIELD {print_path(node.path)} ON {quote(node.table)} SET",
        "" if node.type is None else f"TYPE {print_type(node.type)}",
        _clause("DEFAULT", node.default),
        _clause("ASSERT", node.assertion),
        {None: "", True: "READONLY", False: "READONLY NONE"}[node.readonly],
        _new_comment(node.comment),
    )


def _alter_table(node: tree.AlterTable) -> str:
    return _join(
        f"ALTER TABLE {quote(node.name)} SET",
        {None: "", True: "SCHEMAFULL", False: "SCHEMALESS"}[node.schemafull],
        _new_comment(node.comment),
    )


def _new_comment(comment: str | None) -> str:
    return "COMMENT NONE" if comment == "" else _text("COMMENT", comment)


_STATEMENTS: Final[dict[type, Any]] = {
    tree.Create: lambda node: _write("CREATE", node),
    tree.Insert: _insert,
    tree.Upsert: lambda node: _write("UPSERT", node),
    tree.Update: lambda node: _write("UPDATE", node),
    tree.Delete: lambda node: _write("DELETE", node),
    tree.Select: _select,
    tree.Let: lambda node: f"LET ${node.name} = {_value(node.value)}",
    tree.ReturnStatement: lambda node: f"RETURN {_value(node.value)}",
    tree.Evaluate: lambda node: _evaluate(node),
    tree.If: lambda node: _if(node, print_statement),
    tree.For: lambda node: _for(node, print_statement),
    tree.Throw: lambda node: f"THROW {print_expression(node.value)}",
    tree.Begin: lambda node: "BEGIN",
    tree.Commit: lambda node: "COMMIT",
    tree.Cancel: lambda node: "CANCEL",
    tree.Use: _use,
    tree.DefineNamespace: lambda node: _define("NAMESPACE", node, node.name),
    tree.DefineDatabase: lambda node: _define("DATABASE", node, node.namespace, node.name),
    tree.DefineTable: lambda node: _define("TABLE", node, node.name),
    tree.DropNamespace: lambda node: _drop("NAMESPACE", node, node.name),
    tree.DropDatabase: lambda node: _drop("DATABASE", node, node.namespace, node.name),
    tree.DropTable: lambda node: _drop("TABLE", node, node.name),
    tree.DefineSpace: _define_space,
    tree.DropSpace: lambda node: _drop("SPACE", node, node.name),
    tree.GetKey: lambda node: _of_key("GET", node),
    tree.SetKey: lambda node: _of_key("SET", node),
    tree.SwapKey: lambda node: _of_key("SWAP", node),
    tree.IncrKey: lambda node: _of_key("INCR", node),
    tree.DeleteKey: lambda node: _of_key("DELETE", node),
    tree.ExpireKey: lambda node: _of_key("EXPIRE", node),
    tree.PersistKey: lambda node: _of_key("PERSIST", node),
    tree.LockKey: lambda node: _of_key("LOCK", node),
    tree.UnlockKey: lambda node: _of_key("UNLOCK", node),
    tree.ListKeys: _list_keys,
    tree.DropKeys: _drop_keys,
    tree.DefineTopic: _define_topic,
    tree.AlterTopic: _alter_topic,
    tree.DropTopic: lambda node: _drop("TOPIC", node, node.name),
    tree.TrimTopic: _trim_topic,
    tree.Publish: _publish,
    tree.ReadTopic: _read_topic,
    tree.DefineReader: _define_reader,
    tree.CommitReader: lambda node: _join(
        _on_table("COMMIT READER", node.name, node.topic), _clause("AT", node.position)
    ),
    tree.AlterReader: _alter_reader,
    tree.DropReader: lambda node: _drop_on("READER", node),
    tree.DefineGroup: _define_group,
    tree.AlterGroup: _alter_group,
    tree.DropGroup: lambda node: _drop_on("GROUP", node),
    tree.Take: _take,
    tree.Ack: lambda node: _settled("ACK", node),
    tree.Nack: lambda node: _settled("NACK", node),
    tree.Extend: lambda node: _settled("EXTEND", node),
    tree.GiveUp: lambda node: _settled("GIVE UP", node),
    tree.Redrive: _redrive,
    tree.DefineField: _define_field,
    tree.AlterTable: _alter_table,
    tree.AlterField: _alter_field,
    tree.DropField: lambda node: f"DROP FIELD {print_path(node.path)} ON {quote(node.table)}",
    tree.DefineUser: _define_user,
    tree.AlterUser: _alter_user,
    tree.DropUser: lambda node: _drop("USER", node, node.name),
    tree.DefineNode: _define_node,
    tree.DefineIndex: _define_index,
    tree.DropIndex: lambda node: _join(
        _on_table("DROP INDEX", node.name, node.table), _text("REASON", node.reason)
    ),
    tree.RebuildIndex: lambda node: _on_table("REBUILD INDEX", node.name, node.table),
    tree.Explain: _explain,
    tree.Info: _info,
    tree.Kill: lambda node: f"KILL {quote_string(node.id)}",
}


def _evaluate(node: tree.Evaluate) -> str:
    """An expression as a statement; one that begins with a field's name, which a statement can't,
    in parentheses."""
    text = print_expression(node.value)
    return f"({text})" if isinstance(_first(node.value), tree.Name) else text


def _first(node: tree.Expression) -> tree.Expression:
    """What the text of an expression begins with, parentheses and signs aside."""
    while True:
        if isinstance(node, tree.Binary):
            node = node.left
        elif isinstance(node, tree.Range):
            node = node.low
        elif isinstance(node, tree.Attribute | tree.Index | tree.Each):
            node = node.of
        else:
            return node


assert limits.DEPTH < 100, "printing recurses as deep as trees are high"
