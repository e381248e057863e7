"""RESTORE SCRIPT FROM: a script of the backup folder, run beside the existing data.

The script is read twice. The first pass checks all of it and writes nothing: the script is
complete, every statement only creates, in databases that the script makes, and none of these
exists. The second pass writes, in commits of a few megabytes: namespaces and databases, each with a
mark (`storage/catalog/restores.py`); their content; with the last commit the marks go. If it ends
before, they are dropped again, at the latest at the next start.

Each statement runs with the caller's privileges, authorized at its own run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from actors.backups.script_files import pieces
from actors.scripts.execution import Execution
from actors.scripts.handlers import Requires, handles
from actors.scripts.plans import Plan
from actors.scripts.transactions import ScriptRun
from language import tree
from language.creating import Names, NotCreating, RestoreScriptValidator, refused
from language.lexer import all_tokens
from language.parser import parse
from language.splitting import Piece
from protocol import limits
from protocol.errors import FROM_OUTSIDE, Refusal, RestoreRefused, RestoreTargetExists, Unknown
from protocol.rights import NOTHING, OWN, SecurableKind
from protocol.values import NONE, Value
from storage.catalog import restores
from storage.catalog.places import Database, Namespace
from storage.catalog.restores import RestoreMark
from storage.txn.tickets import CommitTicket

COMMIT_BYTES: Final = 4 * limits.MIB
"""Changes of one commit, about (bytes)."""
FIRST_WORDS: Final = 3
WORD_CHARACTERS: Final = 40
PLACES: Final = 10_000
"""Most namespaces and databases that one script may make."""

Checked = tuple[int, Piece, tree.Script]
"""A statement of a script: its number, its text and its tree."""


@handles(
    tree.RestoreScript,
    "value",
    writes=True,
    needs=[Requires(OWN, SecurableKind.STORE)],
    audited=True,
)
def restore_script(run: ScriptRun, statement: tree.RestoreScript) -> Value:
    """Make namespaces and databases from a script. Return `{path, statements, databases}`; with
    CHECK, without making them.

    :raises RestoreRefused: it does anything else than create, or runs inside another statement
    :raises RestoreTargetExists: a database that it makes exists
    :raises BackupCut, BackupCorrupt: the script is incomplete, or damaged
    :raises BackupNameRefused, NoBackupFolder, Unknown: of its name
    """
    # The statement runs again for each commit and each retry, on the same work.
    if run.statement_work is None:
        if not run.may_run_again:
            raise RestoreRefused("RESTORE SCRIPT must be a statement of its own")
        run.services.backups.check_name(statement.name)
        run.enlist()
        run.statement_work = Restore(run, statement)
    assert isinstance(run.statement_work, Restore)
    return run.statement_work.commit_next_part()


class Restore:
    """State of one script that is being restored, from its first pass to its last commit."""

    def __init__(self, run: ScriptRun, statement: tree.RestoreScript) -> None:
        self._run = run
        self._statement = statement
        self._file = run.services.backups.opened(run.fiber, statement.name)
        self._checked = False
        self._namespaces: dict[str, Checked] = {}
        """Statements that define a namespace, by its name; the first of several."""
        self._databases: dict[Names, Checked] = {}
        """Statements that define a database, likewise."""
        self._statements = 0
        self._marks: list[RestoreMark] = []
        self._filled: Iterator[Checked] | None = None
        self._part: list[Checked] = []
        """Statements run in this commit; run again after a conflict."""
        self._inside = _Inside(run)
        self._place: tuple[str | None, str | None] = (None, None)
        """Current namespace and database of the script when this commit began."""
        self._refused: Refusal | None = None
        self._done = False
        """True once the last of its commits is made, released or not."""

    def commit_next_part(self) -> Value:
        """Do the next commit; return the answer, if it was the last."""
        run = self._run
        if not self._checked:
            # Release the snapshot: the first pass reads the file only, and may take long.
            run.transaction.release()
            self._check()
            run.goes_on = True
            return NONE
        if self._filled is None:
            # Checked in the transaction that makes them: a name taken meanwhile conflicts.
            self._check_targets()
            if self._statement.check:
                return self._answer()
            # All places and their marks are one commit: after a crash each place has its mark.
            self._make_places()
            run.goes_on = True
            return NONE
        return self._fill()

    def leave(self) -> None:
        """Close the file. Drop what was made, unless it was filled to the end."""
        self._file.close()
        if self._done or not self._marks:
            return
        ticket = self._run.services.unfinished.give_up(self._marks)
        if ticket is not None:
            # The refusal waits for the drop: a retry finds the names free.
            self._run.rest_on(ticket)

    # --- reading ----------------------------------------------------------------------------------

    def _each(self, script: RestoreScriptValidator) -> Iterator[Checked]:
        """Yield the statements, each checked. :raises RestoreRefused: one does not only create"""
        tick = self._run.tick
        for number, piece in enumerate(pieces(self._file.read), 1):
            tick()
            found = None
            try:
                found = parse(piece.text, tick)
                if len(found.statements) != 1:
                    raise NotCreating("it is more than one statement")
                script.take(found.statements[0])
                if len(script.databases) + len(script.namespaces) > PLACES:
                    raise NotCreating(f"a script creates at most {PLACES} namespaces and databases")
            except NotCreating as why:
                assert found is not None, "only a statement that parses is looked at"
                one = number, piece, found
                raise self._placed(refused(why, _first_words(piece.text)), one) from None
            except Refusal as refusal:
                raise self._placed(refusal, (number, piece, found)) from refusal.__cause__
            yield number, piece, found

    def _check(self) -> None:
        for one in self._each(RestoreScriptValidator(self._run.tick)):
            self._statements = one[0]
            match one[2].statements[0]:
                case tree.DefineNamespace(name=name):
                    self._namespaces.setdefault(name, one)
                case tree.DefineDatabase(namespace=namespace, name=name):
                    assert namespace is not None, "a script that only creates names it"
                    self._databases.setdefault((namespace, name), one)
        self._checked = True

    def _placed(self, refusal: Refusal, at: tuple[int, Piece, tree.Script | None]) -> Refusal:
        """Add the position in the script to a refusal of one of its statements. The place of the
        RESTORE itself is left for the outer statement.

        :param at: the statement; without its tree, the refusal says its line
        """
        # These say nothing about the script: the same statement may pass next time.
        if refusal.retry or isinstance(refusal, FROM_OUTSIDE):
            return refusal
        number, piece, script = at
        line = refusal.detail.get("line", 1)
        if "line" not in refusal.detail and script is not None and script.statements:
            line, _ = script.position(script.statements[0].at)
        assert isinstance(line, int)
        restored = {"statement": number, "line": piece.line + line - 1}
        detail = {name: told for name, told in refusal.detail.items() if name not in _NOT_ITS_OWN}
        where = f"statement {number} of {self._statement.name}, at line {restored['line']}"
        return type(refusal)(f"{refusal.without_place} ({where})", **detail, restored=restored)

    # --- making -----------------------------------------------------------------------------------

    def _check_targets(self) -> None:
        """Refuse databases that exist, and databases in a namespace that neither exists nor is
        made."""
        for names, made in self._databases.items():
            path = ".".join(names)
            if self._has_database(names):
                exists = RestoreTargetExists(f"database {path} exists", kind="database", name=path)
                raise self._placed(exists, made)
            if names[0] not in self._namespaces:
                try:
                    self._namespace(names[0])
                except Unknown as unknown:
                    raise self._placed(unknown, made) from None

    def _has_database(self, names: Names) -> bool:
        run = self._run
        try:
            run.rights.database(run.transaction, run.caller, *names, NOTHING)
        except Unknown:
            return False
        return True

    def _namespace(self, name: str) -> Namespace:
        """Return an existing namespace. :raises Unknown: it does not exist"""
        run = self._run
        return run.rights.namespace(run.transaction, run.caller, name, NOTHING)

    def _make_places(self) -> None:
        """Run the statements that make namespaces and databases, and mark the new ones. An existing
        namespace is used as it is."""
        run = self._run
        places: list[Namespace | Database] = []
        for name, made in self._namespaces.items():
            try:
                self._namespace(name)
            except Unknown:
                self._execute(made)
                places.append(self._namespace(name))
        for names, made in self._databases.items():
            self._execute(made)
            places.append(run.rights.database(run.transaction, run.caller, *names, NOTHING))
        marks = [restores.mark(run.transaction, place) for place in places]
        run.afterwards.append(partial(self._made, marks, frozenset(self._databases)))

    def _execute(self, one: Checked) -> None:
        """Run a statement. :raises Refusal: with its place in the script"""
        try:
            self._inside.execute(one[2])
        except Refusal as refusal:
            raise self._placed(refusal, one) from refusal.__cause__

    def _made(self, marks: list[RestoreMark], only: frozenset[Names]) -> None:
        self._marks = marks
        # The second pass checks again: it may create only the databases checked to be absent.
        self._filled = self._each(RestoreScriptValidator(self._run.tick, only))

    def _fill(self) -> Value:
        run = self._run
        assert self._filled is not None
        self._inside.begin_commit(self._place)
        # After a conflict the statements of `_part` run again, before any new one is read.
        at = 0
        while run.transaction.size < COMMIT_BYTES:
            if at == len(self._part):
                following = self._next(self._filled)
                if following is None:
                    # With the last content, in one commit: no complete database keeps a mark.
                    restores.finish(run.transaction, self._marks)
                    run.afterwards.append(self._finished)
                    return self._answer()
                self._part.append(following)
            one = self._part[at]
            at += 1
            if type(one[2].statements[0]) not in (tree.DefineNamespace, tree.DefineDatabase):
                self._execute(one)  # the skipped ones ran in `_make_places`
        run.goes_on = True
        run.afterwards.append(self._part_done)
        return NONE

    def _next(self, filled: Iterator[Checked]) -> Checked | None:
        """Return the next statement; None: there is none. A refusal is final, even if the current
        commit is run again."""
        if self._refused is not None:
            raise self._refused
        try:
            return next(filled, None)
        except Refusal as refusal:
            self._refused = refusal
            raise

    def _part_done(self) -> None:
        self._part.clear()
        self._place = self._inside.place

    def _finished(self) -> None:
        self._done = True
        self._run.services.unfinished.filled(self._marks, self._run.ticket)

    def _answer(self) -> Value:
        return {
            "path": self._statement.name,
            "statements": self._statements,
            "databases": [".".join(names) for names in self._databases],
        }


_NOT_ITS_OWN: Final = frozenset({"line", "column", "near", "statement", "table"})
"""Details removed from the refusal of a statement of the script: its position there, and a table
name that would be looked up in the caller's database."""


class _Inside(Execution):
    """Runs the statements of a script, in the transaction of the restoring statement."""

    def __init__(self, run: ScriptRun) -> None:
        super().__init__(run.services, run.request, run.fiber)
        self._outer = run
        self.variables: dict[str, Any] = {}

    def begin_commit(self, place: tuple[str | None, str | None]) -> None:
        """Begin a commit."""
        # A lost attempt may have run USE: the place at the commit's begin counts.
        self.place = place

    def execute(self, script: tree.Script) -> None:
        """Run one statement. :raises Refusal:"""
        outer = self._outer
        self.transaction, self.afterwards = outer.transaction, outer.afterwards
        self.plan = Plan(script)
        self._ids = 0
        self.run_step(self.plan.step(script.statements[0]))

    def depends_on(self, ticket: CommitTicket) -> None:
        self._outer.depends_on(ticket)

    def rest_on(self, ticket: CommitTicket) -> None:
        self._outer.rest_on(ticket)


def _first_words(text: str) -> str:
    tokens = all_tokens(text[: 4 * limits.KIB])
    words = [word[:WORD_CHARACTERS] for word in tokens.texts]
    return " ".join(words[:FIRST_WORDS])
