"""Plans: texts parsed and compiled once, and cached for the next request with the same text.

The cache is bounded in entries and in bytes, and never holds a secret: a text that contains a
password or a hash is planned each time. So no secret outlives its statement, where a core dump of
the process would show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from actors.scripts.steps import Step, is_about_node
from language import tree
from language.budget import bounded, is_bounded
from language.compile import compile_rowless
from language.error_places import placed
from language.names import weight
from language.operators import parameter
from language.parser import parse
from language.printing import redacted_together
from language.secrets import binds_secrets, holds_secret
from language.sizing import WorkingMemory
from protocol import limits
from protocol.bounded_cache import BoundedCache
from protocol.errors import NotInTransaction, Refusal

Made = TypeVar("Made")

EDGES: Final = (tree.Begin, tree.Commit, tree.Cancel)
BLOCKS: Final = frozenset({tree.If, tree.For, tree.Let, tree.ReturnStatement})
"""Statements that contain others."""
KEPT_PLANS: Final = 512
KEPT_BYTES: Final = 32 * limits.MIB
"""Limit of all cached plans together, about. A text of a few KiB may make a plan of megabytes."""
LARGE_PART: Final = 16
"""Divisor of KEPT_BYTES for the largest plan: a larger one would evict hundreds."""
KEPT_TEXT_CHARACTERS: Final = 16 * limits.KIB
"""Longest text whose plan is cached. Longer texts contain their data and hardly come twice."""
NODE_BYTES: Final = 720
"""Memory of a node of the tree with its compiled code (bytes). Measured: 50 to 200 in most texts,
this much with very short statements."""


def rowless(expression: tree.Expression) -> Callable[[Any], Any]:
    """Return the function of an expression outside any row, called with its environment.

    Its value is bounded: one that contains itself twice, again and again, is refused as `TooLarge`.
    """
    # A bare parameter needs no compiled code; its value was bounded when it was bound.
    if type(expression) is tree.Parameter:
        return partial(_bound, expression)
    compute = compile_rowless(expression)
    if is_bounded(expression):
        return compute
    return lambda env: bounded(compute(env), env.tick)


def _bound(node: tree.Parameter, env: Any) -> Any:
    try:
        return parameter(env, node.name)
    except Refusal as refusal:
        raise placed(refusal, node.at) from refusal.__cause__


class Plan:
    """A script with everything that was compiled from its nodes.

    Nodes are keyed by identity: they live as long as the script, which is referenced here.
    """

    def __init__(self, script: tree.Script) -> None:
        self.script = script
        self.current = script.current
        self.transactions = transactions(script)
        """Statements that run as one transaction each: first offset, and offset behind the last."""
        self.begins_about_node = not script.statements or is_about_node(script.statements[0])
        """True if a node that answers no client begins it too; see `Step.about_node`."""
        self.tells_of_cluster = all(map(_tells_of_cluster, script.statements))
        """True if it only asks for the state of the cluster, which is answered without waiting for
        a release."""
        self._made: dict[int, Any] = {}
        self._steps: dict[int, Step] = {}
        """Steps by their nodes' identities. Each references its node, which must live as long:
        another node at its address would get its privileges."""
        self._redacted: dict[tuple[int, int], str] = {}
        self._binds: bool | None = None
        """True if its variables may be bound to secrets; None: not computed yet."""

    def made(self, node: Any, make: Callable[[Any], Made]) -> Made:
        """Return `make(node)`, computed once."""
        made = self._made.get(id(node))
        if made is None:
            made = self._made[id(node)] = make(node)
        return made

    def step(self, statement: Any) -> Step:
        """Return the step of a statement of the script, nested or not."""
        found = self._steps.get(id(statement))
        if found is None:
            found = self._steps[id(statement)] = Step(statement)
        return found

    def redacted(self, first: int, end: int) -> str:
        """Return the text of some statements without secrets, as the statement log keeps it."""
        key = (first, end)
        text = self._redacted.get(key)
        if text is None:
            text = self._redacted[key] = self._text(self.script.statements[first:end])
        return text

    def _text(self, statements: tuple[tree.Statement, ...]) -> str:
        if len(self.script.text) > KEPT_TEXT_CHARACTERS:
            # Printing it all to keep a few lines would cost more than running it.
            kinds = "; ".join(type(statement).__name__.upper() for statement in statements[:8])
            return f"{kinds} … (of a script of {len(self.script.text)} characters)"
        # Asked of the whole script: a LET elsewhere may bind a secret of these statements.
        if self._binds is None:
            self._binds = binds_secrets(self.script.statements)
        return _cut(redacted_together(statements, self._binds))


def _tells_of_cluster(statement: tree.Statement) -> bool:
    return isinstance(statement, tree.Info) and statement.subject in ("NODE", "CLUSTER")


def _cut(text: str) -> str:
    encoded = text.encode()
    if len(encoded) <= limits.STATEMENT_TEXT_BYTES:
        return text
    # The cut may split a character: its bytes are left out.
    kept = encoded[: limits.STATEMENT_TEXT_BYTES].decode(errors="ignore")
    return f"{kept}… ({len(encoded)} bytes)"


def transactions(script: tree.Script) -> tuple[tuple[int, int], ...]:
    """Return the spans of statements that are one transaction each: a BEGIN to its COMMIT or
    CANCEL, and every statement outside of these.

    :raises NotInTransaction: one without the other, or a BEGIN inside a block
    """
    # Invariant: the spans cover the statements in order, without gaps, and are never empty.
    spans: list[tuple[int, int]] = []
    begun: int | None = None
    for number, statement in enumerate(script.statements):
        if isinstance(statement, tree.Begin):
            if begun is not None:
                raise _misplaced(script, number, "BEGIN inside a transaction")
            begun = number
        elif isinstance(statement, (tree.Commit, tree.Cancel)):
            if begun is None:
                word = type(statement).__name__.upper()
                raise _misplaced(script, number, f"{word} without BEGIN")
            spans.append((begun, number + 1))
            begun = None
        else:
            if type(statement) in BLOCKS:
                _check_blocks(script, number, statement)
            if begun is None:
                spans.append((number, number + 1))
    if begun is not None:
        raise _misplaced(script, begun, "BEGIN without COMMIT or CANCEL")
    return tuple(spans)


def _check_blocks(script: tree.Script, number: int, statement: Any) -> None:
    """Check the blocks of a statement.

    :raises NotInTransaction: an edge of a transaction stands inside IF or FOR
    """
    for block in _blocks(statement):
        for inner in block.statements:
            if isinstance(inner, EDGES):
                word = type(inner).__name__.upper()
                line, column = script.position(inner.at)
                raise NotInTransaction(
                    f"{word} cannot be inside IF or FOR: put the whole transaction into the script",
                    statement=number + 1,
                    line=line,
                    column=column,
                )
            _check_blocks(script, number, inner)


def _blocks(statement: Any) -> Iterator[tree.Block]:
    if isinstance(statement, (tree.Let, tree.ReturnStatement)):
        statement = statement.value
    if isinstance(statement, tree.For):
        yield statement.body
    elif isinstance(statement, tree.If):
        yield from (block for _, block in statement.branches)
        if statement.otherwise is not None:
            yield statement.otherwise


def _misplaced(script: tree.Script, number: int, problem: str) -> NotInTransaction:
    line, column = script.position(script.statements[number].at)
    return NotInTransaction(problem, statement=number + 1, line=line, column=column)


def _is_secretive(statements: tuple[tree.Statement, ...]) -> bool:
    """True if a text contains a secret, or may: in a LET or a FOR beside a WRITE."""
    lets = any(type(one) in BLOCKS for one in statements)
    return holds_secret(statements) or (lets and binds_secrets(statements))


class Plans:
    """Cache of the plans of the most recently used texts (LRU).

    :param most_bytes: limit of their memory together, about
    """

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self._kept: BoundedCache[Plan] = BoundedCache(most_bytes, KEPT_PLANS, LARGE_PART)

    @property
    def bytes(self) -> int:
        """Memory of the cached plans, about."""
        return self._kept.bytes

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, text: str, tick: Callable[[], None], memory: WorkingMemory | None = None) -> Plan:
        """Return the plan of a text.

        :param tick: called now and then while a text is parsed, and after it
        :param memory: counts the tree of a text whose plan is not cached
        :raises Refusal: it does not parse; see `language.parser.parse`
        """
        kept = self._kept.get(text)
        if kept is not None:
            return kept
        if memory is not None:
            memory.tree = len(text)
        plan = Plan(parse(text, tick, memory))
        tick()
        may_keep = len(text) <= KEPT_TEXT_CHARACTERS
        may_keep = may_keep and not _is_secretive(plan.script.statements)
        # A cached plan counts against KEPT_BYTES, not against this one script.
        if may_keep and self._keep(text, plan) and memory is not None:
            memory.tree = 0
        return plan

    def _keep(self, text: str, plan: Plan) -> bool:
        """Cache a plan. Return False if it is too large."""
        size = len(text) + NODE_BYTES * weight(plan.script.statements, KEPT_TEXT_CHARACTERS)
        return self._kept.keep(text, plan, size)
