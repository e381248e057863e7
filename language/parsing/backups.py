"""Parser of BACKUP and RESTORE SCRIPT."""

from __future__ import annotations

from typing import Final

from language import tree
from language.lexer import INT
from language.parsing.places import PlaceParser
from protocol import limits

GRAMMAR: Final = """
backup = BACKUP ([STATE] [OF part] | LOG [FROM int] | FROM int | SCRIPT [OF part {"," part}])
    [TO string]
part = NAMESPACE name | name "." name
restore_script = RESTORE SCRIPT FROM string [CHECK]
"""

_DIGITS: Final = 19
"""Number of digits of the largest sequence."""


class BackupParser(PlaceParser):
    """Parser of backup statements."""

    def restore_script(self) -> tree.RestoreScript:
        at = self._begin_statement("RESTORE")
        self.expect_word("SCRIPT", "FROM")
        return tree.RestoreScript(self.string("the name of a backup"), self.take_word("CHECK"), at)

    def backup(self) -> tree.Backup:
        at = self._begin_statement("BACKUP")
        if self.take_word("LOG") or self.word() == "FROM":
            first = self._sequence() if self.take_word("FROM") else None
            if self.word() == "OF":
                self.unexpected("TO, or the end of the statement: a log is of the whole store")
            return tree.Backup("LOG", first, (), self._to(), at)
        if self.take_word("SCRIPT"):
            places = self._parts() if self.take_word("OF") else []
            self._not_from()
            return tree.Backup("SCRIPT", None, tuple(places), self._to(), at)
        self.take_word("STATE")
        one = (self._part(),) if self.take_word("OF") else ()
        if one and self.is_mark(","):
            self.unexpected(
                "TO, or the end of the statement: a snapshot is of one place, or of all"
            )
        self._not_from()
        return tree.Backup("STATE", None, one, self._to(), at)

    def _not_from(self) -> None:
        if self.word() == "FROM":
            self.unexpected("TO, or the end of the statement: only a log begins at a sequence")

    def _sequence(self) -> int:
        """Parse the first sequence of a log backup."""
        text = self.texts[self.i]
        if self.kinds[self.i] != INT or len(text.lstrip("0")) > _DIGITS:
            self.unexpected("a sequence of the log")
        found = int(text)
        if not 1 <= found <= limits.INT_MAX:
            self.unexpected("a sequence of the log, which are from 1")
        self.i += 1
        return found

    def _parts(self) -> list[tree.SecurableRef]:
        found = [self._part()]
        while self.separated():
            found.append(self._part())
            self.at_most(found, "places")
        return found

    def _part(self) -> tree.SecurableRef:
        """Parse a namespace or database that can be backed up by itself."""
        if self.word() == "NAMESPACE" and not self.is_mark(".", 1):
            self.i += 1
            return tree.SecurableRef("NAMESPACE", (self.name("namespace"),))
        namespace = self.name("namespace")
        self.expect_mark(".")
        return tree.SecurableRef("DATABASE", (namespace, self.name("database")))

    def _to(self) -> str | None:
        if not self.take_word("TO"):
            return None
        return self.string("the name of a backup")
