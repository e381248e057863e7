"""Access paths: how a statement reaches the records of a table, by id, by index or by a scan.

Index entries are looked up before the first record is read: the number of matching records is then
exact, not an estimate. If there are too many, a scan of the whole table in key order is faster, and
is done. With any access path, records come in the order of a scan, or in that of ORDER BY.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from actors.scripts.access import Access, AccessPath
from actors.scripts.distance_order import in_order
from actors.scripts.execution import Execution
from actors.scripts.text_search import TextAccess, index_of
from language import tree
from language.fixed import is_fixed
from language.planner import (
    COMPARISONS,
    ID,
    Branches,
    Candidate,
    Either,
    Question,
    Span,
    Term,
)
from language.rows import Batch, Pairs
from language.search.fields import matched_paths
from language.select import SelectPlan
from protocol import order
from protocol.errors import Refusal
from protocol.paths import Path
from protocol.values import NoneValue, RecordId, paced
from storage.catalog.tables import Table
from storage.formats import keys
from storage.formats.keys import Pair
from storage.indexes import entries as indexes
from storage.indexes.entries import Index
from storage.records import records

FEW: Final = 64
"""Most records that are fetched one by one without comparing the cost of a scan."""
WORTH: Final = 5
"""Cost of fetching a record, in records read by a scan."""
BESIDE: Final = 4
"""Limit of the entries looked up in a second index, for each entry of the first."""
SHORT: Final = 1_000
"""Most entries looked up to avoid walking another index in order."""
FIRST: Final = 32
CHUNK: Final = 256
"""Records fetched in one step: few at first, since LIMIT may need no more."""
ID_BYTES: Final = 64
"""Memory of an index entry's id, about (bytes), for as long as the statement runs."""

_SHORT_RANGE: Final = "the range of ids is read in one step"
_BEYOND_LINKS: Final = "the values are beyond a record link, which no index follows"
_NO_VALUE: Final = "the value to look up cannot be computed"
_NO_HELP: Final = "with these values the condition selects no range of it"
_TOO_MANY: Final = "it leads to more than {} records, which are read faster by a scan"
_NO_LIMIT: Final = "without LIMIT, or with DISTINCT, all rows are sorted"
_LARGE_LIMIT: Final = "with so large a LIMIT a scan is faster"
_INEXACT: Final = "it holds only a prefix of long values, so their order is unknown"
_ENOUGH: Final = "another index already leads to few records"


@dataclass(frozen=True, slots=True)
class _IndexLookup:
    """Result of an index lookup for some conditions."""

    by: tuple[Candidate, ...]
    used: tuple[Term, ...]
    ids: list[bytes]
    access: Access = "index"


class _Unknown(Exception):
    """A term has no value, or none that helps: the evaluation of the condition gives the reason."""


class _Values:
    """Values of the terms of a WHERE clause, computed on first use."""

    def __init__(self, run: Execution) -> None:
        self._run = run
        self._known: dict[int, Any] = {}

    def __call__(self, term: Term) -> Any:
        """Return the value of a term. :raises _Unknown:"""
        key = id(term)
        # The plan holds the terms, so an id() stays unique for the whole run.
        if key not in self._known:
            self._known[key] = self._value(term)
        return self._known[key]

    def _value(self, term: Term) -> Any:
        try:
            if term.operator != "RANGE":
                return self._run.evaluate(term.value)
            assert isinstance(term.value, tree.Range)
            bounds = (self._run.evaluate(term.value.low), self._run.evaluate(term.value.high))
        except Refusal:
            # A scan may never evaluate it (short circuit): it is refused there, or not at all.
            raise _Unknown from None
        # IN low..high takes ints only: WHERE itself refuses others.
        if type(bounds[0]) is not int or type(bounds[1]) is not int:
            raise _Unknown
        return bounds


def access_path(
    run: Execution, plan: SelectPlan, table: Table, source: keys.Range, *, alone: bool
) -> AccessPath:
    """Choose the access path to the records of a table that lie in a range of keys.

    :param alone: True if the statement reads nothing else, so that ORDER BY is about these
    """
    question = plan.question
    # Fast path: no condition and no order that an index could serve.
    if question.plain and plan.by_distance is None:
        return _scan(run, table, source, source)
    choice = _Choice(run, plan, table, source, alone)
    try:
        found = choice.made()
    # WHERE is evaluated for each record then, and raises the refusal if it gets there.
    except _Unknown:
        found = choice.scan(source, ())
    found.why = choice.why
    return found


def unique(run: Execution, table: Table, path: Path, value: Any) -> list[Pair] | None:
    """Return the record, or none, with a value in a UNIQUE index over that field alone; it skips
    the comparison of access paths. None: there is no such index, or it does not suffice."""
    index = _unique(table, path)
    id = None if index is None else indexes.holder(run.transaction, index, value)
    if id is None:
        return None
    return records.fetch(run.transaction, table, [id] if id else [], 0, 1)[0]


def equal(run: Execution, table: Table, path: Path, value: Any) -> list[Pair] | None:
    """Return the records with a value, and perhaps a few others, by an index over that field alone;
    it skips the comparison of access paths. None: there is no such index, or too many records."""
    if type(value) in _NOT_LOOKED_UP or len(path) > 1:
        return None
    index = next((one for one in table.indexes if one.usable and one.paths == (path,)), None)
    if index is None:
        return None
    encoded = order.encode(value)
    if len(encoded) > order.kept_bytes(index.most):
        return None
    span = keys.within(index.entries + indexes.WHOLE + encoded)
    ids: list[bytes] = []
    for pairs in indexes.entries(run.transaction, index, *span):
        ids += map(indexes.entry_id, pairs)
        if len(ids) > FEW:
            return None
    found: list[Pair] = []
    at = 0
    while at < len(ids):
        some, at = records.fetch(run.transaction, table, ids, at, FEW)
        found += some
        run.tick()
    return found


_NOT_LOOKED_UP: Final = frozenset({NoneValue, type(None), list, dict})
"""Types of values with other entries than one for each record, or with very many."""


def _unique(table: Table, path: Path) -> Index | None:
    """Return the UNIQUE index of a table over that field alone."""
    if len(path) == 1:
        for index in table.indexes:
            # An index under construction misses records, so it cannot show that there is none.
            if index.unique and index.usable and index.paths == (path,):
                return index
    return None


def _scan(
    run: Execution, table: Table, span: keys.Range, whole: keys.Range, reverse: bool = False
) -> AccessPath:
    access: Access = "scan" if whole == keys.within(table.prefix) == span else "range"
    return AccessPath(table, access, _scanned(run, table, span, reverse), reverse=reverse)


def _scanned(run: Execution, table: Table, span: keys.Range, reverse: bool) -> Iterator[Batch]:
    record_id = records.record_id(table)
    for pairs in records.scan_keys(run.transaction, *span, reverse):
        yield Pairs(pairs, record_id)
        run.tick()


class _Choice:
    """Planner for the records of one table."""

    def __init__(
        self, run: Execution, plan: SelectPlan, table: Table, source: keys.Range, alone: bool
    ) -> None:
        self._run, self._plan, self._table, self._source = run, plan, table, source
        self._question: Question = plan.question
        self._values = _Values(run)
        self._alone = alone
        order = self._question.order if alone else ()
        # A scan yields records by id, so ORDER BY id needs no sort.
        self._by_id = bool(order) and order[0][0] == ID
        self._down = self._by_id and order[0][1]
        # Rows that LIMIT needs: the bound of a walk in the order of an index.
        self._most = plan.most(run) if order and not self._by_id else None
        self._record_ids = records.record_id(table)
        self._worth: int | None = None
        self.why: dict[str, str] = {}
        """Reasons, as `AccessPath.why`."""

    def made(self) -> AccessPath:
        """Return the access path. :raises _Unknown: a value that it depends on can't be computed"""
        # Named ids win without a comparison: each costs one lookup by its key.
        named = self._named()
        if named is not None:
            term, ids = named
            return self._fetching("record", self._inside(ids), (), (term,))
        bounds, used = self._id_bounds()
        if self._table.indexes:
            if self._question.texts:
                found = self._by_text()
                if found is not None:
                    return found
            if self._is_short(bounds):
                candidates = self._plan.candidates(self._table.indexes)
                self.why = dict.fromkeys((one.index.name for one in candidates), _SHORT_RANGE)
                return self.scan(bounds, used)
            found = self._by_index()
            if found is not None:
                return found
            found = self._by_distance(bounds)
            if found is not None:
                return found
        return self.scan(bounds, used)

    def scan(self, span: keys.Range, used: tuple[Term, ...]) -> AccessPath:
        """Return a scan of all records between two keys."""
        found = _scan(self._run, self._table, span, self._source, self._down)
        found.ordered, found.used = self._by_id, used
        return found

    def _by_distance(self, bounds: keys.Range) -> AccessPath | None:
        """Return the way in the order of ORDER BY a distance; None: rows are sorted."""
        if not self._alone or bounds != keys.within(self._table.prefix):
            return None
        found = in_order(self._run, self._plan, self._table)
        if found is None:
            return None
        index, way, batches = found
        return AccessPath(self._table, "nearest", batches, True, indexes=(index.name,), nearest=way)

    # --- by id ------------------------------------------------------------------------------------

    def _named(self) -> tuple[Term, list[bytes]] | None:
        """Return the ids that a condition names one by one, with its term."""
        for term in self._question.terms:
            if term.path == ID and term.operator in ("=", "IN"):
                value = self._values(term)
                items = [value] if term.operator == "=" else value
                # Other operands of IN are left to WHERE.
                if type(items) is list:
                    ours = filter(self._is_ours, paced(items, self._run.tick))
                    return term, [order.encode(item.id) for item in ours]
        return None

    def _is_ours(self, value: Any) -> bool:
        return type(value) is RecordId and value.table == self._table.name

    def _id_bounds(self) -> tuple[keys.Range, tuple[Term, ...]]:
        """Return the range of keys that conditions on `id` leave of the source."""
        start, end = self._source
        used: list[Term] = []
        for term in self._question.terms:
            if term.path != ID or term.operator not in COMPARISONS:
                continue
            value = self._values(term)
            # Ids of other tables, and values that are no id, are left to WHERE.
            if not self._is_ours(value):
                continue
            key = keys.record(self._table.prefix, value.id)
            # The next possible key: ranges exclude their end.
            past = key + b"\0"
            used.append(term)
            if term.operator in (">", ">="):
                start = max(start, key if term.operator == ">=" else past)
            else:
                end = min(end, key if term.operator == "<" else past)
        return (start, end), tuple(used)

    def _is_short(self, span: keys.Range) -> bool:
        """True if a range of ids is read in one step."""
        if span == keys.within(self._table.prefix):
            return False
        # At most two steps are read to find out, however long the range is.
        steps = records.scan_keys(self._run.transaction, *span)
        return next(steps, None) is None or next(steps, None) is None

    def _inside(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return the ids without duplicates, in order, and only those that lie in the source."""
        start, end = self._source
        prefix = self._table.prefix
        # Encoded ids sort as a scan yields them, whichever index gave them.
        found = sorted(set(ids))
        if self._source == keys.within(prefix):
            return found
        return [id for id in found if start <= prefix + id < end]

    def _fetching(
        self,
        access: Access,
        ids: list[bytes],
        by: tuple[Candidate, ...],
        used: tuple[Term, ...],
    ) -> AccessPath:
        names = tuple(dict.fromkeys(candidate.index.name for candidate in by))
        if self._down:
            ids.reverse()
        batches = self._fetched(iter([ids]))
        return AccessPath(
            self._table, access, batches, self._by_id, self._down, names, used, entries=len(ids)
        )

    def _fetched(
        self, lists: Iterable[list[bytes]], texts: tuple[TextAccess, ...] = ()
    ) -> Iterator[Batch]:
        """Yield the records of ids, a few at a time. :param texts: conditions that they fulfil"""
        size = FIRST if self._most is None else min(max(self._most, 1), FIRST)
        run = self._run
        for ids in lists:
            at = 0
            while at < len(ids):
                pairs, at = records.fetch(run.transaction, self._table, ids, at, size)
                for text in texts:
                    read = len(pairs)
                    pairs = text.matching(pairs)
                    run.count_read(read - len(pairs))
                if pairs:
                    yield Pairs(pairs, self._record_ids)
                run.tick()
                size = CHUNK

    def _by_text(self) -> AccessPath | None:
        """Return the way by FULLTEXT indexes; None: the records themselves have to be read."""
        ways: list[TextAccess] = []
        used: list[Term] = []
        scope = self._run.texts
        for node in self._question.texts:
            if not is_fixed(node.right):
                continue
            term = Term((), "@@", node.right, node)
            assert scope is not None, "a statement with `@@` has opened one"
            way = scope.access(self._table, node, self._values(term))
            if isinstance(way, str):
                index = index_of(self._table, matched_paths(node.left))
                self.why[index.name] = way
                continue
            ways.append(way)
            used.append(term)
        if not ways:
            return None
        found = self._by_score(ways) or self._by_matches(ways)
        found.used = tuple(used)
        found.answered = tuple(term.node for term in used) if self._alone else ()
        found.texts = tuple(ways)
        found.indexes = tuple(dict.fromkeys(way.index.name for way in ways))
        return found

    def _by_matches(self, ways: list[TextAccess]) -> AccessPath:
        """Return the way in the order of ids, which are merged as they are read: a frequent word
        has a million."""
        start, end = self._source
        prefix = self._table.prefix
        ids = _in_all([way.search.ids() for way in ways])
        if self._source != keys.within(prefix):
            ids = (id for id in ids if start <= prefix + id < end)
        if self._down:
            every = list(ids)
            self._run.memory.held += len(every) * ID_BYTES
            every.reverse()
            ids = iter(every)
        # Beside other sources WHERE is evaluated as a whole.
        batches = self._fetched(_lists(ids), tuple(ways) if self._alone else ())
        return AccessPath(
            self._table, "fulltext", batches, self._by_id, self._down,
            entries=min(way.search.entries for way in ways),
        )  # fmt: skip

    def _by_score(self, ways: list[TextAccess]) -> AccessPath | None:
        """Return the way in the order of ORDER BY search::score() DESC; None: rows are sorted."""
        plan, whole = self._plan, keys.within(self._table.prefix)
        if not (plan.ranks and self._alone and self._source == whole):
            return None
        if len(ways) > 1 or plan.scored != (ways[0].node,):
            return None
        # Without LIMIT all rows are wanted, in whatever order they are read.
        most = plan.most(self._run)
        if most is None:
            return None
        entries, lists = ways[0].search.ranked(most)
        self._most = most
        batches = self._fetched(lists)
        return AccessPath(self._table, "fulltext", batches, ordered=True, entries=entries)

    # --- by an index ------------------------------------------------------------------------------

    def _by_index(self) -> AccessPath | None:
        found: list[_IndexLookup] = []
        candidates = self._plan.candidates(self._table.indexes)
        # A walk needs about LIMIT entries, so other lookups get a small bound beside it.
        in_order = any(map(self._goes_in_order, candidates))
        for candidate in candidates:
            name = candidate.index.name
            # Records that such an index misses would be lost: WHERE never sees them.
            if self._is_beside(candidate):
                self.why[name] = _BEYOND_LINKS
                continue
            # Candidates come best first: an earlier lookup that succeeded beats a walk.
            if not found and self._goes_in_order(candidate):
                way = self._walk(candidate) if self._is_exact(candidate) else None
                if way is not None:
                    return way
            # An intersection pays only while the further lookup is not much larger.
            most = len(found[0].ids) * BESIDE if found else SHORT if in_order else None
            if found and not self._adds(candidate, found):
                continue
            ids = self._looked_up(candidate, most)
            if ids is not None:
                found.append(_IndexLookup((candidate,), candidate.used, ids))
                # So few records cost less to fetch than another lookup.
                if len(ids) <= FEW:
                    for other in filter(lambda one: self._adds(one, found), candidates):
                        self.why.setdefault(other.index.name, _ENOUGH)
                    return self._together(found)
        for either, branches in self._plan.united(self._table.indexes):
            most = len(found[0].ids) * BESIDE if found else SHORT if in_order else None
            one = self._united(either, branches, most)
            if one is not None:
                found.append(one)
        return self._together(found) if found else None

    def _united(self, either: Either, branches: Branches, most: int | None) -> _IndexLookup | None:
        """Return the union of the records of all branches of an OR; None if there are too many, or
        no index helps one of them."""
        by: list[Candidate] = []
        ids: set[bytes] = set()
        for candidates in branches:
            found = self._first_of(candidates, most)
            if found is None:
                return None
            candidate, some = found
            by.append(candidate)
            ids.update(some)
            # Branches may overlap: the union is bounded, not the sum.
            if len(ids) > FEW and len(ids) > (most or self._worthwhile()):
                return None
        # The OR is fulfilled only if each branch's index covers all of that branch.
        whole = all(
            len(one.used) == len(branch.conditions)
            for one, branch in zip(by, either.branches, strict=True)
        )
        return _IndexLookup(tuple(by), (either.term,) if whole else (), list(ids), "union")

    def _first_of(
        self, candidates: tuple[Candidate, ...], most: int | None
    ) -> tuple[Candidate, list[bytes]] | None:
        """Return the first candidate that helps, with the ids that it leads to."""
        for candidate in candidates:
            if self._is_beside(candidate):
                continue
            try:
                ids = self._looked_up(candidate, most)
            # The next index of the branch may depend on other values.
            except _Unknown:
                continue
            if ids is not None:
                return candidate, ids
        return None

    def _goes_in_order(self, candidate: Candidate) -> bool:
        return candidate.ordered and self._most is not None and self._most <= self._worthwhile()

    def _worthwhile(self) -> int:
        """Return the number of records that are fetched one by one faster than a scan reads all."""
        if self._worth is None:
            # A hint, outside the read set: an insert elsewhere in the table is no conflict.
            self._worth = max(FEW, records.about(self._run.transaction, self._table) // WORTH)
        return self._worth

    def _index(self, candidate: Candidate) -> Index:
        index = candidate.index
        assert isinstance(index, Index)
        return index

    def _is_beside(self, candidate: Candidate) -> bool:
        """True if an index does not hold all records: some have values beyond a record link."""
        index = self._index(candidate)
        return index.follows_links and indexes.any_mark(
            self._run.transaction, index, indexes.NOT_HELD
        )

    def _is_exact(self, candidate: Candidate) -> bool:
        """True if the order of entries is that of values: none was truncated."""
        index = self._index(candidate)
        return not indexes.any_mark(self._run.transaction, index, indexes.CUT_SHORT)

    def _adds(self, candidate: Candidate, found: list[_IndexLookup]) -> bool:
        known = {id(term) for one in found for term in one.used}
        return any(id(term) not in known for term in candidate.used)

    def _together(self, found: list[_IndexLookup]) -> AccessPath:
        by = tuple(candidate for one in found for candidate in one.by)
        used = tuple({id(term): term for one in found for term in one.used}.values())
        # A superset of the result suffices: WHERE is evaluated for each record.
        ids = set(found[0].ids)
        for others in found[1:]:
            ids.intersection_update(others.ids)
        access: Access = found[0].access if len(found) == 1 else "indexes"
        return self._fetching(access, self._inside(ids), by, used)

    def _looked_up(self, candidate: Candidate, most: int | None) -> list[bytes] | None:
        """Return the ids that an index leads to; None: they are too many, or it does not help."""
        name = candidate.index.name
        if not candidate.used:
            self.why[name] = self._why_unordered(candidate)
            return None
        try:
            spans = candidate.spans(self._values)
        except _Unknown:
            self.why[name] = _NO_VALUE
            raise
        if spans is None:
            self.why[name] = _NO_HELP
            return None
        index, transaction = self._index(candidate), self._run.transaction
        # Fast path for claims. NONE, NULL and [] may repeat in a UNIQUE index, and
        # arrays have an entry for each element: these have no single claimant.
        if candidate.is_point and all(
            indexes.can_claim(value) and type(value) is not list
            for value in map(self._values, candidate.equal)
        ):
            holder = indexes.claimant(transaction, index, spans.here[0].low)
            return [] if holder is None else [holder]
        found: list[bytes] = []
        memory = self._run.memory
        held = memory.held
        side = indexes.ELEMENTS if spans.elements else indexes.WHOLE
        # CONTAINS holds for strings and objects too: their whole values lie beside.
        for where, several in ((side, spans.here), (indexes.WHOLE, spans.beside)):
            for span in several:
                for pairs in indexes.entries(transaction, index, *_range(index, where, span)):
                    found += map(indexes.entry_id, pairs)
                    memory.held = held + len(found) * ID_BYTES
                    if len(found) > FEW and len(found) > (most or self._worthwhile()):
                        # The ids found so far are dropped: a scan follows.
                        memory.held = held
                        self.why[name] = _TOO_MANY.format(most or self._worthwhile())
                        return None
                    self._run.tick()
        # An attempt with other conditions, those of an OR branch, may have left a reason.
        self.why.pop(name, None)
        return found

    def _why_unordered(self, candidate: Candidate) -> str:
        """Return the reason why an index that only gives the requested order is not walked."""
        if self._most is None:
            return _NO_LIMIT
        if self._most > self._worthwhile():
            return _LARGE_LIMIT
        return _INEXACT if not self._is_exact(candidate) else _NO_HELP

    def _walk(self, candidate: Candidate) -> AccessPath | None:
        """Return a walk in the order of an index; None: it does not help with these values."""
        index = self._index(candidate)
        spans = candidate.spans(self._values)
        if spans is None:
            return None
        # Only `=` stands on the fields before those of ORDER BY, so there is one range.
        (span,) = spans.here
        entries = indexes.entries(
            self._run.transaction,
            index,
            *_range(index, indexes.WHOLE, span),
            candidate.backwards,
        )
        if candidate.backwards and candidate.ties_up:
            lists = self._ties_up(entries)
        else:
            lists = _a_few_at_a_time(entries)
        # Filtered without sorting: the order of the index stays.
        inside = (self._kept(ids) for ids in lists)
        return AccessPath(
            self._table, "index", self._fetched(inside), True, candidate.backwards,
            (index.name,), candidate.used,
        )  # fmt: skip

    def _ties_up(self, entries: Iterator[list[Pair]]) -> Iterator[list[bytes]]:
        """Yield the ids of entries read from the highest value down. Equal values come from the
        lowest id up, as a stable sort leaves them."""
        memory, counted = self._run.memory, 0
        tied: list[bytes] = []
        values: bytes | None = None
        for pairs in entries:
            ready: list[bytes] = []
            for pair in pairs:
                these = indexes.entry_values(pair)
                # Equal values may go on in the next step: the last run is held back.
                if these != values:
                    yield from _last_first(tied, ready)
                    tied, values = [], these
                tied.append(indexes.entry_id(pair))
            if ready:
                yield ready
            # A whole table may have one value: its ids are all held until the last is read.
            memory.held += (len(tied) - counted) * ID_BYTES
            counted = len(tied)
            self._run.tick()
        ready = []
        yield from _last_first(tied, ready)
        yield ready

    def _kept(self, ids: list[bytes]) -> list[bytes]:
        start, end = self._source
        prefix = self._table.prefix
        return [id for id in ids if start <= prefix + id < end]


def _range(index: Index, side: bytes, span: Span) -> keys.Range:
    low, high = index.entries + side + span.low, index.entries + side + span.high
    return (
        keys.within(low)[1] if span.low_past else low,
        keys.within(high)[1] if span.high_past else high,
    )


def _in_all(streams: list[Iterator[bytes]]) -> Iterator[bytes]:
    """Yield the ids that all of some ordered iterators have."""
    first, *others = streams
    heads = [next(one, None) for one in others]
    for id in first:
        for at, other in enumerate(others):
            head = heads[at]
            while head is not None and head < id:
                head = next(other, None)
            if head is None:
                return
            heads[at] = head
        if all(head == id for head in heads):
            yield id


def _lists(ids: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Yield ids in lists, for one read each."""
    while some := list(islice(ids, CHUNK)):
        yield some


def _a_few_at_a_time(entries: Iterator[list[Pair]]) -> Iterator[list[bytes]]:
    """Yield the ids of entries in order, a few at a time: LIMIT may need only a part of a step."""
    for pairs in entries:
        for at in range(0, len(pairs), FEW):
            yield list(map(indexes.entry_id, pairs[at : at + FEW]))


def _last_first(tied: list[bytes], ready: list[bytes]) -> Iterator[list[bytes]]:
    """Append reversed ids to `ready`. Yield the parts of a long run, so that no step is long."""
    if len(tied) <= CHUNK:
        tied.reverse()
        ready += tied
        return
    if ready:
        yield ready[:]
        ready.clear()
    for end in range(len(tied), 0, -CHUNK):
        yield tied[max(end - CHUNK, 0) : end][::-1]
