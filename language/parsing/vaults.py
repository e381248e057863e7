"""Parser of vaults: DEFINE, ALTER, DROP, ROTATE, and the statements on their records.

An id precedes IN, as the key of a cache does, and is therefore an operand.
"""

from __future__ import annotations

from typing import Final

from language import tree
from language.lexer import INT, PARAM
from language.parsing.places import ALTERS, DEFINES, DROPS
from language.parsing.spaces import SpaceParser

GRAMMAR: Final = """
define_vault = DEFINE VAULT [IF NOT EXISTS] name [PASSPHRASE (string | parameter)]
    [VERSIONS int] [comment]
alter_vault = ALTER VAULT name SET (VERSIONS int | comment)
drop_vault = DROP VAULT name [reason]
rotate_vault = ROTATE VAULT name [reason]
write_secret = WRITE key IN VAULT name VALUE expression
    [IF ABSENT | EXPECT VERSION expression] [reason]
reveal_secret = REVEAL key FROM VAULT name [VERSION expression] [reason]
erase_secret = ERASE key FROM VAULT name [reason]
list_secrets = LIST FROM VAULT name [PREFIX expression] [AFTER expression] [LIMIT expression]
"""
_DIGITS: Final = 9
"""Maximum number of digits of a number of versions."""


class VaultParser(SpaceParser):
    """Parser of vault statements."""

    def define_vault(self, at: int) -> tree.Statement:
        unless_there = self.take_word("IF")
        if unless_there:
            self.expect_word("NOT", "EXISTS")
        name = self.name("vault")
        passphrase = bound = None
        if self.take_word("PASSPHRASE"):
            if self.kinds[self.i] == PARAM:
                bound = self.variable()
            else:
                passphrase = self.string("PASSPHRASE")
        versions = self._versions() if self.take_word("VERSIONS") else None
        return tree.DefineVault(
            name, unless_there, passphrase, bound, versions, self._comment(), at
        )

    def _versions(self) -> int:
        text = self.texts[self.i]
        if self.kinds[self.i] != INT or len(text) > _DIGITS:
            self.unexpected("a number of versions")
        self.i += 1
        return int(text)

    def alter_vault(self, at: int) -> tree.Statement:
        name = self.name("vault")
        self.expect_word("SET")
        if self.take_word("VERSIONS"):
            return tree.AlterVault(name, self._versions(), at=at)
        comment = self._comment()
        if comment is None:
            self.unexpected("VERSIONS or COMMENT")
        return tree.AlterVault(name, comment=comment, at=at)

    def drop_vault(self, at: int) -> tree.Statement:
        return tree.DropVault(self.name("vault"), self._reason(), at)

    def rotate_vault(self) -> tree.Statement:
        at = self._begin_statement("ROTATE")
        self.expect_word("VAULT")
        return tree.RotateVault(self.name("vault"), self._reason(), at)

    # --- one record -------------------------------------------------------------------------------

    def _in_vault(self, word: str) -> str:
        self.expect_word(word, "VAULT")
        return self.name("vault")

    def write_secret(self) -> tree.Statement:
        at = self._begin_statement("WRITE")
        id, vault = self._keyed(), self._in_vault("IN")
        self.expect_word("VALUE")
        value = self.expression()
        absent = self.take_word("IF")
        if absent:
            self.expect_word("ABSENT")
        expect = None
        if not absent and self.take_word("EXPECT"):
            self.expect_word("VERSION")
            expect = self.expression()
        return tree.WriteSecret(id, vault, value, absent, expect, self._reason(), at)

    def reveal_secret(self) -> tree.Statement:
        at = self._begin_statement("REVEAL")
        id, vault = self._keyed(), self._in_vault("FROM")
        version = self.expression() if self.take_word("VERSION") else None
        return tree.RevealSecret(id, vault, version, self._reason(), at)

    def erase_secret(self) -> tree.Statement:
        at = self._begin_statement("ERASE")
        return tree.EraseSecret(self._keyed(), self._in_vault("FROM"), self._reason(), at)

    def list_secrets(self) -> tree.Statement:
        at = self._begin_statement("LIST")
        vault = self._in_vault("FROM")
        prefix = self.expression() if self.take_word("PREFIX") else None
        after = self.expression() if self.take_word("AFTER") else None
        limit = self.expression() if self.take_word("LIMIT") else None
        return tree.ListSecrets(vault, prefix, after, limit, at)


DEFINES["VAULT"] = VaultParser.define_vault
ALTERS["VAULT"] = VaultParser.alter_vault
DROPS["VAULT"] = VaultParser.drop_vault
