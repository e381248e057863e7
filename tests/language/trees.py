"""Strategies for syntax trees as the parser makes them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, get_args

from hypothesis import strategies as st

from language import tree
from language.functions import TABLE
from language.parsing.links import linking
from language.parsing.operators import chain, takes_no_rows
from protocol import limits
from protocol.paths import EACH
from protocol.values import NONE

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WORDS = st.sampled_from(
    ["a", "name", "value", "order", "SELECT", "from", "none", "not", "in", "limit", "start", "if",
     "b_1", "count", "group", "case", "when", "end", "time",
     "else", "before", "u", "d", "b", "true", "dec", "_x"]
)  # fmt: skip
ODD = st.sampled_from(["*", "**", "[*]", "`", "a.b"])
LABELS = st.one_of(
    WORDS, ODD, st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
)
FIELDS = LABELS | st.just("")
NAMES = st.one_of(WORDS, st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,5}", fullmatch=True))
CALLABLE = NAMES.filter(lambda name: "-" not in name)
INTS = st.integers(limits.INT_MIN, limits.INT_MAX)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
DECIMALS = st.builds(
    lambda sign, digits, exponent: Decimal((sign, digits, exponent)),
    st.integers(0, 1),
    st.lists(st.integers(0, 9), min_size=1, max_size=34).map(tuple),
    st.integers(-40, 40),
)
DURATIONS = st.timedeltas(timedelta(days=-10_000_000), timedelta(days=10_000_000))
DATETIMES = st.datetimes(datetime(1, 1, 1), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(fold=0)
)
SCALARS = st.one_of(
    st.sampled_from([NONE, None, True, False, math.pi, 0, 1, -1]),
    INTS, FLOATS, DECIMALS, TEXT, st.binary(max_size=8), DATETIMES, DURATIONS, st.uuids(),
)  # fmt: skip
PACKED: st.SearchStrategy[Any] = st.sampled_from(
    [[], {}, [1, "a", [NONE]], {"a": None, "b c": [True, 1.5]}]
)
"""Arrays and objects that are one constant."""
CONSTANTS = SCALARS.map(tree.Constant) | PACKED.map(tree.Constant)
IDENTITIES = st.one_of(
    INTS.map(tree.Constant),
    LABELS.map(tree.Constant),
    st.uuids().map(tree.Constant),
    NAMES.filter(str.isidentifier).map(tree.Parameter),
)
LEAVES = st.one_of(
    CONSTANTS,
    FIELDS.map(tree.Name),
    NAMES.filter(str.isidentifier).map(tree.Parameter),
    st.builds(tree.RecordLiteral, NAMES, IDENTITIES),
)
BINARY = [
    "=", "!=", "<", "<=", ">", ">=", "IN", "NOT IN", "CONTAINS", "~", "??", "+", "-", "*", "/", "%",
]  # fmt: skip


def unary(operator: Any, operand: tree.Expression) -> tree.Expression:
    """A sign before a number is part of the number."""
    return tree.Unary(operator, operand)


def with_its_operands(node: tree.Binary) -> tree.Binary:
    """An array of rows is refused where one value is wanted: IN takes it."""
    if takes_no_rows(node.operator, node.left, node.right):
        return tree.Binary("IN", node.left, node.right)
    return node


def choices(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    branches = st.lists(st.tuples(inner, inner), min_size=1, max_size=3).map(tuple)
    return st.builds(tree.Choice, st.none() | inner, branches, st.none() | inner)


def calls(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def of(name: str) -> st.SearchStrategy[Any]:
        known = TABLE[name]
        taken = [closures(takes) if takes else inner for takes in known.closures]
        return (
            st.integers(known.least, len(taken))
            .flatmap(lambda count: st.tuples(*taken[:count]))
            .map(lambda found: tree.Call(name, found))
        )

    defined = st.builds(
        tree.Call, CALLABLE.map("fn::{}".format), st.lists(inner, max_size=2).map(tuple)
    )
    return st.one_of(st.sampled_from(sorted(TABLE)).flatmap(of), defined)


def closures(count: int) -> st.SearchStrategy[Any]:
    """Closures of so many parameters. They hold no SELECT."""
    names = ("x", "y")[:count]
    values = st.sampled_from([*map(tree.Parameter, names), tree.Constant(1), tree.Name("n")])
    pairs = st.builds(tree.Binary, st.sampled_from(["+", "=", "AND", "??"]), values, values)
    return st.builds(tree.Closure, st.just(names), values | pairs)


def collected(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Paths in parentheses."""
    return st.builds(tree.Collected, st.builds(tree.Attribute, inner, LABELS))


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(
        some.map(tree.Array),
        st.lists(st.tuples(TEXT, inner), max_size=3).map(tuple).map(tree.Object),
        st.builds(tree.RecordLiteral, NAMES, some.map(tree.Array)),
        st.builds(tree.Attribute, inner, FIELDS),
        st.builds(tree.Index, inner, inner),
        st.builds(tree.Each, inner),
        st.builds(tree.Index, collected(inner), inner),
        st.builds(tree.Each, collected(inner)),
        st.builds(unary, st.sampled_from(["-", "+", "NOT"]), inner),
        st.builds(tree.Binary, st.sampled_from(BINARY), inner, inner).map(with_its_operands),
        st.builds(
            lambda operator, parts: flat(operator, parts),
            st.sampled_from(["AND", "OR"]),
            st.lists(inner, min_size=2, max_size=5),
        ),
        st.builds(tree.Range, inner, inner, st.booleans()),
        choices(inner),
        calls(inner),
        selects(inner).map(tree.Subquery),
        LINKS_BACK,
    )


LINKS_BACK = st.builds(
    lambda table, path: tree.Subquery(linking(table, tuple(path))),
    NAMES,
    st.lists(LABELS, min_size=1, max_size=2),
)


def flat(operator: str, parts: list[Any]) -> tree.Expression:
    from language.parsing.operators import operands_of

    return chain(operator, [one for part in parts for one in operands_of(part, operator)])


STEPS = st.one_of(FIELDS, st.integers(-9, 9), st.just(EACH))
PATHS = st.builds(lambda head, rest: (head, *rest), LABELS, st.lists(STEPS, max_size=3))


def targets(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        NAMES.map(tree.TableTarget),
        st.builds(
            lambda table, low, high, inclusive: tree.RecordRange(
                table, low, high, inclusive and high is not None
            ),
            NAMES,
            st.none() | IDENTITIES,
            st.none() | IDENTITIES,
            st.booleans(),
        ),
        inner.map(tree.ExpressionTarget),
    )


def columns(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(st.builds(tree.Column, inner, st.none() | LABELS), min_size=1, max_size=3).map(
        tuple
    )


TIMEOUTS = st.none() | st.timedeltas(timedelta(microseconds=1), timedelta(days=9))


def selects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    maybe = st.none() | inner
    paths = st.lists(PATHS, max_size=2).map(tuple)
    rest: dict[str, Any] = {
        "omit": paths, "sources": st.lists(targets(inner), min_size=1, max_size=2).map(tuple),
        "where": maybe, "split": st.none() | PATHS,
        "group": st.none() | st.lists(inner, max_size=2).map(tuple), "having": maybe,
        "order": st.lists(st.builds(tree.Order, inner, st.booleans()), max_size=2).map(tuple),
        "limit": maybe, "start": maybe, "fetch": paths, "timeout": TIMEOUTS, "only": st.booleans(),
        "distinct": st.booleans(), "current": st.booleans(),
    }  # fmt: skip
    one = st.builds(tree.Column, inner, st.none() | LABELS).map(lambda column: (column,))
    return st.one_of(
        st.builds(tree.Select, value=st.just(True), everything=st.just(False), columns=one, **rest),
        st.builds(
            tree.Select,
            value=st.just(False),
            everything=st.just(False),
            columns=columns(inner),
            **rest,
        ),
        st.builds(
            tree.Select,
            value=st.just(False),
            everything=st.just(True),
            columns=st.just(()) | columns(inner),
            **rest,
        ),
    )


EXPRESSIONS = st.recursive(LEAVES, larger, max_leaves=12)
SMALL = st.recursive(LEAVES, larger, max_leaves=4)
ASSIGNMENTS = st.builds(tree.Assignment, PATHS, SMALL, st.sampled_from(["=", "+=", "-="]))
SETS = st.lists(ASSIGNMENTS, min_size=1, max_size=3).map(tuple).map(tree.Set)
CONTENTS = SMALL.map(tree.Content)
MERGES = SMALL.map(tree.Merge)
UNSETS = st.lists(PATHS, min_size=1, max_size=3).map(tuple).map(tree.Unset)
RETURNS = st.none() | st.one_of(
    st.sampled_from([tree.Return(kind) for kind in ("NONE", "BEFORE", "AFTER", "DIFF")]),
    columns(SMALL).map(lambda found: tree.Return("FIELDS", found)),
)
SINGLE = st.one_of(NAMES.map(tree.TableTarget), SMALL.map(tree.ExpressionTarget))
EXISTS = st.sampled_from(tree.Exists)
COMMENTS = st.none() | TEXT
SPACES = st.none() | st.one_of(
    NAMES.map(lambda name: tree.SecurableRef("NAMESPACE", (name,))),
    st.tuples(NAMES, NAMES).map(lambda names: tree.SecurableRef("DATABASE", names)),
)
NOUNS = st.one_of(
    st.lists(NAMES, min_size=1, max_size=2).map(
        lambda names: tree.SecurableRef("ALL VAULTS IN", (*names,))
    ),
    st.just(tree.SecurableRef("NODE")),
    NAMES.map(lambda name: tree.SecurableRef("NAMESPACE", (name,))),
    st.lists(NAMES, min_size=1, max_size=2).map(
        lambda names: tree.SecurableRef("DATABASE", (*names,))
    ),
    st.builds(
        tree.SecurableRef,
        st.sampled_from(["TABLE", "TOPIC", "SPACE", "VAULT"]),
        st.lists(NAMES, min_size=1, max_size=3).map(tuple),
    ),
)
HISTORYLESS = st.one_of(
    NAMES.map(lambda name: tree.SecurableRef("NAMESPACE", (name,))),
    NAMES.map(lambda name: tree.SecurableRef("TABLE", (name,))),
    st.lists(NAMES, min_size=1, max_size=2).map(
        lambda names: tree.SecurableRef("DATABASE", (*names,))
    ),
)
VERBS = st.lists(st.sampled_from(["READ", "WRITE", "ODD"]), min_size=1, max_size=3).map(tuple)
ROLES = st.sampled_from(["owner", "editor", "viewer", "member", "writable", "odd"])
VARIABLES = NAMES.filter(str.isidentifier)

ON_CHANGE = st.builds(tree.OnChange, NAMES, st.lists(LABELS, max_size=2).map(tuple))
PLACES = st.one_of(
    st.builds(tree.DefineNamespace, NAMES, EXISTS, COMMENTS),
    st.builds(tree.DefineDatabase, st.none() | NAMES, NAMES, EXISTS, COMMENTS),
    st.builds(tree.DefineTable, NAMES, EXISTS, st.booleans(), COMMENTS, st.none() | ON_CHANGE),
    st.builds(tree.DropNamespace, NAMES, COMMENTS),
    st.builds(tree.DropDatabase, st.none() | NAMES, NAMES, COMMENTS),
    st.builds(tree.DropTable, NAMES, COMMENTS),
    st.builds(tree.DefineUser, NAMES, ROLES, TEXT, st.none(), EXISTS, COMMENTS, SPACES),
    st.builds(tree.DefineUser, NAMES, ROLES, st.none(), TEXT, EXISTS, COMMENTS, SPACES),
    st.builds(tree.DefineUser, NAMES, ROLES, comment=COMMENTS, space=SPACES, bound=VARIABLES),
    st.builds(tree.AlterUser, NAMES, TEXT, st.none()),
    st.builds(tree.AlterUser, NAMES, bound=VARIABLES),
    st.builds(tree.AlterUser, NAMES, st.none(), ROLES),
    st.builds(tree.DropUser, NAMES, COMMENTS),
    st.builds(tree.Grant, VERBS, NOUNS, NAMES),
    st.builds(tree.Revoke, VERBS, NOUNS, NAMES),
    st.lists(NAMES, max_size=1).map(lambda names: tree.Info("GRANTS", tuple(names))),
    st.builds(
        tree.DefineNode,
        st.none() | st.lists(ROLES, max_size=3).map(tuple),
        st.lists(TEXT, min_size=1, max_size=2).map(tuple),
    ),
    st.builds(tree.DefineNode, st.lists(ROLES, max_size=3).map(tuple), st.none()),
    st.builds(tree.DefineNode, st.none(), st.none(), st.lists(TEXT, max_size=2).map(tuple)),
    st.builds(tree.Use, NAMES, st.none() | NAMES),
    st.builds(tree.Use, st.none(), NAMES),
    st.sampled_from(
        [tree.Info(one) for one in ("STORE", "USERS", "NODE", "STATE", "RUNNING", "BACKUPS")]
    ),
    NAMES.map(lambda name: tree.Info("TABLE", (name,))),
    NAMES.map(lambda name: tree.Info("USER", (name,))),
    st.lists(NAMES, max_size=1).map(lambda names: tree.Info("NAMESPACE", tuple(names))),
    st.lists(NAMES, max_size=2).map(lambda names: tree.Info("DATABASE", tuple(names))),
    st.builds(tree.RestoreScript, TEXT, st.booleans()),
    TEXT.map(tree.Constant).map(tree.Kill),
    st.just(tree.Kill(tree.Parameter("id"))),
    st.builds(
        tree.InfoEntries,
        st.sampled_from(["STATEMENTS", "AUDIT"]),
        st.none() | INTS.map(tree.Constant),
        st.none() | st.just(tree.Parameter("limit")),
        st.none() | NAMES,
    ),
    st.builds(
        tree.InfoHistory,
        SMALL | HISTORYLESS,
        st.none() | INTS.map(tree.Constant),
        st.none() | st.just(tree.Parameter("limit")),
    ),
)
PARTS = st.one_of(
    NAMES.map(lambda name: tree.SecurableRef("NAMESPACE", (name,))),
    st.tuples(NAMES, NAMES).map(lambda names: tree.SecurableRef("DATABASE", names)),
)
BACKUPS = st.one_of(
    st.builds(
        tree.Backup,
        st.just("STATE"),
        st.none(),
        st.lists(PARTS, max_size=1).map(tuple),
        st.none() | TEXT,
    ),
    st.builds(
        tree.Backup,
        st.just("LOG"),
        st.none() | st.integers(1, limits.INT_MAX),
        st.just(()),
        st.none() | TEXT,
    ),
    st.builds(
        tree.Backup,
        st.just("SCRIPT"),
        st.none(),
        st.lists(PARTS, max_size=3).map(tuple),
        st.none() | TEXT,
    ),
)
LITERALS = st.one_of(
    st.sampled_from([None, True, False]), INTS, FLOATS, DECIMALS, TEXT, st.binary(max_size=8),
    DATETIMES, DURATIONS, st.uuids(),
).map(tree.LiteralType)  # fmt: skip
ANY = tree.PlainType("any")


def _unions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.lists(inner, min_size=2, max_size=3).map(
        lambda found: tuple(
            member
            for one in found
            for member in (one.members if isinstance(one, tree.UnionType) else (one,))
        )
    )
    return st.one_of(
        inner.map(tree.OptionType),
        st.builds(tree.ArrayType, inner, st.none() | st.integers(0, 9)),
        members.map(tree.UnionType),
    )


FIELD_TYPES = st.recursive(
    st.one_of(
        st.sampled_from([tree.PlainType(kind) for kind in get_args(tree.Kind)]),
        st.builds(tree.RecordType, st.lists(NAMES, max_size=2).map(tuple)),
        LITERALS,
    ),
    _unions,
    max_leaves=5,
)
FIELD_PATHS = PATHS.filter(lambda path: not any(isinstance(step, int) for step in path))
FIELD_STATEMENTS = st.one_of(
    st.builds(
        tree.DefineField,
        FIELD_PATHS, NAMES, FIELD_TYPES, EXISTS, st.none() | SMALL, st.none() | SMALL,
        st.none() | SMALL, st.booleans(), COMMENTS, st.booleans(),
    ),
    st.builds(tree.DropField, FIELD_PATHS, NAMES),
    st.builds(tree.AlterField, FIELD_PATHS, NAMES, type=FIELD_TYPES),
    st.builds(tree.AlterField, FIELD_PATHS, NAMES, default=SMALL),
    st.builds(tree.AlterField, FIELD_PATHS, NAMES, value=SMALL),
    st.builds(tree.AlterField, FIELD_PATHS, NAMES, assertion=SMALL),
    st.builds(tree.AlterField, FIELD_PATHS, NAMES, readonly=st.booleans()),
    st.builds(tree.AlterField, FIELD_PATHS, NAMES, comment=TEXT),
    st.builds(tree.AlterTable, NAMES, schemafull=st.booleans()),
    st.builds(tree.AlterTable, NAMES, comment=TEXT),
    st.builds(tree.AlterTable, NAMES, on_change=ON_CHANGE | st.just(tree.OnChange(None))),
)  # fmt: skip
KEYS = st.one_of(SMALL, TEXT.map(tree.Constant))
SPANS = st.none() | st.timedeltas(timedelta(microseconds=1), timedelta(days=900))
SPACE_STATEMENTS = st.one_of(
    st.builds(tree.DefineSpace, NAMES, EXISTS, SPANS, COMMENTS),
    st.builds(tree.DropSpace, NAMES, COMMENTS),
    NAMES.map(lambda name: tree.Info("SPACE", (name,))),
    st.builds(tree.GetKey, KEYS, NAMES),
    st.builds(
        lambda key, space, value, expire, keep, when: tree.SetKey(
            key, space, value, expire, keep and expire is None, when
        ),
        KEYS, NAMES, SMALL, st.none() | SMALL, st.booleans(),
        st.sampled_from([None, "ABSENT", "PRESENT"]),
    ),
    st.builds(
        lambda key, space, value, when, at: tree.SetKey(key, space, value, None, False, when, at),
        KEYS, NAMES, SMALL, st.sampled_from([None, "ABSENT", "PRESENT"]), SMALL,
    ),
    st.builds(tree.SwapKey, KEYS, NAMES, SMALL, SMALL, st.none() | SMALL),
    st.builds(tree.IncrKey, KEYS, NAMES, st.none() | SMALL),
    st.builds(tree.DeleteKey, KEYS, NAMES),
    st.builds(tree.ExpireKey, KEYS, NAMES, SMALL),
    st.builds(tree.PersistKey, KEYS, NAMES),
    st.builds(tree.LockKey, KEYS, NAMES, SMALL, SMALL),
    st.builds(tree.UnlockKey, KEYS, NAMES, SMALL),
    st.builds(tree.ListKeys, NAMES, st.none() | SMALL, st.none() | SMALL, st.none() | SMALL),
    st.builds(tree.DropKeys, NAMES, SMALL, COMMENTS),
)  # fmt: skip
VERSIONS = st.none() | st.integers(1, 100)
VAULT_STATEMENTS = st.one_of(
    st.builds(
        tree.DefineVault,
        NAMES, st.booleans(),
        st.none() | TEXT, st.none(), VERSIONS, COMMENTS,
    ),
    st.builds(tree.DefineVault, NAMES, bound=NAMES.filter(str.isidentifier), versions=VERSIONS),
    st.builds(tree.AlterVault, NAMES, st.integers(1, 100)),
    st.builds(tree.AlterVault, NAMES, comment=TEXT),
    st.builds(tree.DropVault, NAMES, COMMENTS),
    st.builds(tree.RotateVault, NAMES, COMMENTS),
    st.builds(tree.WriteSecret, KEYS, NAMES, SMALL, st.booleans(), reason=COMMENTS),
    st.builds(tree.WriteSecret, KEYS, NAMES, SMALL, expect=SMALL, reason=COMMENTS),
    st.builds(tree.RevealSecret, KEYS, NAMES, st.none() | SMALL, COMMENTS),
    st.builds(tree.EraseSecret, KEYS, NAMES, COMMENTS),
    st.builds(tree.ListSecrets, NAMES, st.none() | SMALL, st.none() | SMALL, st.none() | SMALL),
    NAMES.map(lambda name: tree.Info("VAULT", (name,))),
    st.builds(tree.InfoTrail, NAMES, st.none(), st.none() | SMALL, st.none() | SMALL),
    st.builds(
        tree.InfoTrail, st.none(), st.none() | SMALL, st.none() | SMALL, st.none() | SMALL
    ),
    st.builds(tree.InfoTrail, NAMES, check=st.just(True)),
    st.builds(tree.InfoTrail, st.none(), st.none() | SMALL, check=st.just(True)),
)  # fmt: skip
ENDPOINTS = st.lists(TEXT, min_size=1, max_size=2).map(tuple)
NODE_ROLES = st.lists(ROLES, max_size=2).map(tuple)
FINGERPRINTS = st.text("0123456789abcdef", min_size=64, max_size=64)
LASTING = st.timedeltas(timedelta(0), timedelta(days=9))
CLUSTER_STATEMENTS = st.one_of(
    st.builds(
        tree.DefineReplica,
        NAMES, TEXT, st.just(()) | ENDPOINTS, st.none() | TEXT, st.none(), st.none() | NODE_ROLES,
        EXISTS, COMMENTS,
    ),
    st.builds(tree.DefineReplica, NAMES, TEXT, certificate=FINGERPRINTS),
    st.builds(tree.AlterReplica, NAMES, NODE_ROLES),
    st.builds(tree.AlterReplica, NAMES, peer=TEXT),
    st.builds(tree.AlterReplica, NAMES, endpoints=ENDPOINTS),
    st.builds(tree.AlterReplica, NAMES, leads=st.lists(NAMES, max_size=3).map(tuple)),
    st.builds(tree.DropReplica, NAMES, COMMENTS),
    st.builds(tree.CreateJoinToken, st.none() | NAMES, st.none() | LASTING),
    st.builds(tree.RevokeCertificate, FINGERPRINTS, COMMENTS),
    st.builds(
        tree.DefineFailover,
        st.lists(st.sampled_from(["http://a", "https://b.c:1"]), min_size=1, max_size=2).map(tuple),
        LASTING, st.integers(0, 9), LASTING, st.sampled_from(["AUTO", "MANUAL"]),
    ),
    st.builds(tree.DropFailover, COMMENTS),
    st.just(tree.LeadStore()),
    st.builds(tree.LeadStore, st.just(True), TEXT),
    st.just(tree.Info("CLUSTER")),
)  # fmt: skip
INDEXES = st.one_of(
    st.builds(
        tree.DefineIndex,
        NAMES, NAMES, st.lists(PATHS, min_size=1, max_size=3).map(tuple), st.booleans(), EXISTS,
        COMMENTS,
    ),
    st.builds(tree.DropIndex, NAMES, NAMES, COMMENTS),
    st.builds(tree.RebuildIndex, NAMES, NAMES),
    st.tuples(NAMES, NAMES).map(lambda names: tree.Info("INDEX", names)),
    st.builds(
        tree.Explain, st.builds(tree.Delete, NAMES.map(tree.TableTarget), CONSTANTS), st.booleans()
    ),
)  # fmt: skip


def functions(names: list[str]) -> st.SearchStrategy[Any]:
    """Definitions of functions with these parameters. A body begins with no word of statements."""
    parameters = st.tuples(
        *(st.builds(tree.FunctionParameter, st.just(name), FIELD_TYPES) for name in names)
    )
    return st.builds(
        tree.DefineFunction,
        CALLABLE, parameters, SMALL.map(lambda body: tree.Array((body,))), st.none() | FIELD_TYPES,
        EXISTS, COMMENTS,
    )  # fmt: skip


FUNCTIONS = st.one_of(
    st.lists(st.sampled_from(["a", "b", "type", "select"]), max_size=3, unique=True).flatmap(
        functions
    ),
    st.builds(tree.DropFunction, CALLABLE, COMMENTS),
    CALLABLE.map(lambda name: tree.Info("FUNCTION", (name,))),
)
PLAIN = st.one_of(
    st.builds(tree.Create, SINGLE, st.none() | SETS | CONTENTS, RETURNS, TIMEOUTS),
    st.builds(
        lambda table, rows, ignore, twice, returning, timeout: tree.Insert(
            table, rows, ignore, None if ignore else twice, returning, timeout
        ),
        NAMES, SMALL, st.booleans(), st.none() | SETS, RETURNS, TIMEOUTS,
    ),
    st.builds(
        tree.Upsert, SMALL.map(tree.ExpressionTarget), SETS | CONTENTS | MERGES, RETURNS, TIMEOUTS
    ),
    st.builds(
        tree.Update,
        targets(SMALL), SETS | CONTENTS | MERGES | UNSETS, st.none() | SMALL, RETURNS, TIMEOUTS,
        limit=st.none() | SMALL,
    ),
    st.builds(
        tree.Delete, targets(SMALL), st.none() | SMALL, RETURNS, TIMEOUTS, limit=st.none() | SMALL
    ),
    selects(SMALL),
    st.builds(tree.Throw, SMALL),
    st.sampled_from([tree.Begin(), tree.Commit(), tree.Cancel()]),
    SMALL.map(tree.Evaluate),
    PLACES,
    BACKUPS,
    FIELD_STATEMENTS,
    SPACE_STATEMENTS,
    VAULT_STATEMENTS,
    CLUSTER_STATEMENTS,
    INDEXES,
    FUNCTIONS,
)  # fmt: skip


def flowing(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    blocks = st.lists(inner, max_size=2).map(tuple).map(tree.Block)
    branches = st.lists(st.tuples(SMALL, blocks), min_size=1, max_size=2).map(tuple)
    ifs = st.builds(tree.If, branches, st.none() | blocks)
    return st.one_of(
        ifs,
        st.builds(tree.For, VARIABLES, SMALL, blocks),
        st.builds(tree.Let, VARIABLES, SMALL | ifs),
        st.builds(tree.ReturnStatement, SMALL | ifs),
    )


STATEMENTS = st.recursive(PLAIN, flowing, max_leaves=4)
