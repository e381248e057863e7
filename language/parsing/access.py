"""Parser of access control: DEFINE, ALTER and DROP USER, GRANT and REVOKE."""

from __future__ import annotations

from typing import Final

from language import tree
from language.lexer import NAME, PARAM
from language.parsing.places import ALTERS, DEFINES, DROPS, PlaceParser, either

GRAMMAR: Final = """
define_user = DEFINE USER [exists] name ROLE word [ON (NAMESPACE name | DATABASE name "." name)]
    (PASSWORD (string | parameter) | PASSHASH string) [comment]
alter_user = ALTER USER name SET (PASSWORD (string | parameter) | ROLE word)
drop_user = DROP USER name [reason]
grant = GRANT word {"," word} ON securable TO name
revoke = REVOKE word {"," word} ON securable FROM name
securable = NODE | NAMESPACE name | DATABASE database
    | (TABLE | TOPIC | SPACE | VAULT) [[name "."] name "."] name
    | ALL VAULTS IN name ["." name]
"""


class AccessParser(PlaceParser):
    """Parser of user and privilege statements."""

    def define_user(self, at: int) -> tree.Statement:
        exists = self._exists()
        name = self.name("user")
        self.expect_word("ROLE")
        role = self.role()
        space = self._space() if self.take_word("ON") else None
        password = passhash = bound = None
        if self.take_word("PASSWORD"):
            password, bound = self._password()
        elif self.take_word("PASSHASH"):
            passhash = self.string("PASSHASH")
        else:
            self.unexpected("PASSWORD or PASSHASH" if space else "ON, PASSWORD or PASSHASH")
        comment = self._comment()
        return tree.DefineUser(name, role, password, passhash, exists, comment, space, bound, at)

    def _password(self) -> tuple[str | None, str | None]:
        """Parse a password: a literal, or the name of the parameter that holds it."""
        if self.kinds[self.i] == PARAM:
            return None, self.variable()
        return self.string("PASSWORD"), None

    def _space(self) -> tree.SecurableRef:
        if self.take_word("NAMESPACE"):
            return tree.SecurableRef("NAMESPACE", (self.name("namespace"),))
        if self.word() != "DATABASE":
            self.unexpected("NAMESPACE or DATABASE")
        self.i += 1
        namespace = self.name("namespace")
        self.expect_mark(".")
        return tree.SecurableRef("DATABASE", (namespace, self.name("database")))

    def alter_user(self, at: int) -> tree.Statement:
        name = self.name("user")
        self.expect_word("SET")
        if self.take_word("PASSWORD"):
            password, bound = self._password()
            return tree.AlterUser(name, password=password, bound=bound, at=at)
        if self.take_word("ROLE"):
            return tree.AlterUser(name, role=self.role(), at=at)
        self.unexpected("PASSWORD or ROLE")

    def drop_user(self, at: int) -> tree.Statement:
        return tree.DropUser(self.name("user"), self._reason(), at)

    def grant(self) -> tree.Statement:
        at = self._begin_statement("GRANT")
        verbs, securable = self._verbs(), self.securable()
        self.expect_word("TO")
        return tree.Grant(verbs, securable, self.name("user"), at)

    def revoke(self) -> tree.Statement:
        at = self._begin_statement("REVOKE")
        verbs, securable = self._verbs(), self.securable()
        self.expect_word("FROM")
        return tree.Revoke(verbs, securable, self.name("user"), at)

    def _verbs(self) -> tuple[str, ...]:
        """Parse verbs up to ON. The node checks them: valid verbs are not part of the grammar."""
        found = [self._verb()]
        while self.separated():
            found.append(self._verb())
            self.at_most(found, "verbs")
        self.expect_word("ON")
        return tuple(found)

    def _verb(self) -> str:
        if self.kinds[self.i] != NAME:
            self.unexpected("a verb")
        self.i += 1
        return self.texts[self.i - 1].upper()

    def securable(self) -> tree.SecurableRef:
        """Parse the securable of a privilege."""
        if self.take_word("ALL", "VAULTS", "IN"):
            within = [self.name("namespace")]
            if self.take_mark("."):
                within.append(self.name("database"))
            return tree.SecurableRef("ALL VAULTS IN", tuple(within))
        word = self.word()
        if word not in _PARTS:
            self.unexpected(either(*_PARTS, "ALL VAULTS IN"))
        self.i += 1
        parts = _PARTS[word]
        names = [self.name(word.lower())] if parts else []
        while len(names) < parts and self.take_mark("."):
            names.append(self.name(word.lower()))
        return tree.SecurableRef(word, tuple(names))


_PARTS: Final = {
    "NODE": 0, "NAMESPACE": 1, "DATABASE": 2, "TABLE": 3, "TOPIC": 3, "SPACE": 3,
    "VAULT": 3,
}  # fmt: skip
"""Kinds of securables, and the maximum number of names that each may have."""

DEFINES["USER"] = AccessParser.define_user
ALTERS["USER"] = AccessParser.alter_user
DROPS["USER"] = AccessParser.drop_user
