"""Parser of cache spaces: DEFINE, DROP, and the statements on keys.

A key precedes IN, which is also an operator. It is therefore an operand (a literal, a parameter, a
path of one, or an expression in parentheses) and not a full expression.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal

from language import tree
from language.lexer import DURATION, NAME, QUOTED
from language.parsing.places import DEFINES, DROPS, PlaceParser
from protocol.spaces import check_expire
from protocol.text import parse_duration
from protocol.values import MICROSECOND

GRAMMAR: Final = """
define_space = DEFINE SPACE [exists] name [EXPIRE duration] [comment]
drop_space = DROP SPACE name [reason]
get_key = GET key FROM name
set_key = SET key IN name VALUE expression [EXPIRE [AT] expression | KEEP]
    [IF (ABSENT | PRESENT)]
swap_key = SWAP key IN name EXPECT expression VALUE expression [EXPIRE expression]
incr_key = INCR key IN name [BY expression]
delete = delete_records | DELETE key FROM name
expire_key = EXPIRE key IN name expression
persist_key = PERSIST key IN name
lock_key = LOCK key IN name HOLDER expression EXPIRE expression
unlock_key = UNLOCK key IN name HOLDER expression
list_keys = KEYS FROM name [PREFIX expression] [AFTER expression] [LIMIT expression]
drop_keys = DROP KEYS IN name PREFIX expression [reason]
key = addressed
"""


class SpaceParser(PlaceParser):
    """Parser of cache space statements."""

    def define_space(self, at: int) -> tree.Statement:
        exists = self._exists()
        name = self.name("space")
        expire = self._literal_expire() if self.take_word("EXPIRE") else None
        return tree.DefineSpace(name, exists, expire, self._comment(), at)

    def _literal_expire(self) -> timedelta:
        if self.kinds[self.i] != DURATION:
            self.unexpected("a duration such as 5m")
        with self.placed(self.i):
            expire = parse_duration(self.texts[self.i])
            check_expire(expire // MICROSECOND)
        self.i += 1
        return expire

    def drop_space(self, at: int) -> tree.Statement:
        return tree.DropSpace(self.name("space"), self._reason(), at)

    def drop_keys(self, at: int) -> tree.Statement:
        space = self._in()
        self.expect_word("PREFIX")
        return tree.DropKeys(space, self.expression(), self._reason(), at)

    # --- one key ----------------------------------------------------------------------------------

    def _keyed(self) -> tree.Expression:
        if self.kinds[self.i] in (NAME, QUOTED) and not (
            self.is_mark("(", 1) or self.is_mark(":", 1)
        ):
            self.unexpected("a key: 'text' or $name")
        return self.operand()

    def _in(self) -> str:
        self.expect_word("IN")
        return self.name("space")

    def _from(self) -> str:
        self.expect_word("FROM")
        return self.name("space")

    def _expires(self) -> tree.Expression | None:
        return self.expression() if self.take_word("EXPIRE") else None

    def get_key(self) -> tree.GetKey:
        at = self._begin_statement("GET")
        return tree.GetKey(self._keyed(), self._from(), at)

    def set_key(self) -> tree.SetKey:
        at = self._begin_statement("SET")
        key, space = self._keyed(), self._in()
        self.expect_word("VALUE")
        value = self.expression()
        expire_at = self.expression() if self.take_word("EXPIRE", "AT") else None
        expire = self._expires() if expire_at is None else None
        keep = expire is None and expire_at is None and self.take_word("KEEP")
        return tree.SetKey(key, space, value, expire, keep, self._when(), expire_at, at)

    def _when(self) -> Literal["ABSENT", "PRESENT"] | None:
        if not self.take_word("IF"):
            return None
        if self.take_word("ABSENT"):
            return "ABSENT"
        if self.take_word("PRESENT"):
            return "PRESENT"
        self.unexpected("ABSENT or PRESENT")

    def swap_key(self) -> tree.SwapKey:
        at = self._begin_statement("SWAP")
        key, space = self._keyed(), self._in()
        self.expect_word("EXPECT")
        expect = self.expression()
        self.expect_word("VALUE")
        return tree.SwapKey(key, space, expect, self.expression(), self._expires(), at)

    def incr_key(self) -> tree.IncrKey:
        at = self._begin_statement("INCR")
        key, space = self._keyed(), self._in()
        return tree.IncrKey(key, space, self.expression() if self.take_word("BY") else None, at)

    def delete(self) -> tree.Delete | tree.DeleteKey:  # type: ignore[override]
        """Parse DELETE of records or of a key, which has FROM."""
        start, at = self.i, self._begin_statement("DELETE")
        target = self.target()
        if self.word() != "FROM":
            self.i = start
            return super().delete()
        if not isinstance(target, tree.ExpressionTarget):
            self.unexpected("a key: 'text' or $name", start + 1)
        return tree.DeleteKey(target.expression, self._from(), at)

    def expire_key(self) -> tree.ExpireKey:
        at = self._begin_statement("EXPIRE")
        return tree.ExpireKey(self._keyed(), self._in(), self.expression(), at)

    def persist_key(self) -> tree.PersistKey:
        at = self._begin_statement("PERSIST")
        return tree.PersistKey(self._keyed(), self._in(), at)

    def lock_key(self) -> tree.LockKey:
        at = self._begin_statement("LOCK")
        key, space = self._keyed(), self._in()
        self.expect_word("HOLDER")
        holder = self.expression()
        self.expect_word("EXPIRE")
        return tree.LockKey(key, space, holder, self.expression(), at)

    def unlock_key(self) -> tree.UnlockKey:
        at = self._begin_statement("UNLOCK")
        key, space = self._keyed(), self._in()
        self.expect_word("HOLDER")
        return tree.UnlockKey(key, space, self.expression(), at)

    def list_keys(self) -> tree.ListKeys:
        at = self._begin_statement("KEYS")
        space = self._from()
        prefix = self.expression() if self.take_word("PREFIX") else None
        after = self.expression() if self.take_word("AFTER") else None
        limit = self.expression() if self.take_word("LIMIT") else None
        return tree.ListKeys(space, prefix, after, limit, at)


DEFINES["SPACE"] = SpaceParser.define_space
DROPS["SPACE"] = SpaceParser.drop_space
DROPS["KEYS"] = SpaceParser.drop_keys
