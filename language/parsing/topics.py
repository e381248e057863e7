"""Parser of topics: DEFINE, ALTER, DROP and TRIM, readers and groups, and the statements on
messages.

The settings of a declaration (durations, counts) are literals and are checked here, so that an
error shows their position. The arguments of statements on messages are expressions, so that
programs can bind them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from language import tree
from language.lexer import DURATION, INT, SIZE
from language.parsing.places import ALTERS, DEFINES, DROPS, PlaceParser, either
from protocol import limits
from protocol.errors import BadRequest
from protocol.text import parse_duration, parse_size

LONGEST: Final = timedelta(days=365_000)
"""Longest duration, a thousand years: a time that far away still fits a datetime."""
IN_FLIGHT_MOST: Final = 100_000
"""Maximum number of unacknowledged messages of one group."""
DELIVERIES_MOST: Final = 1_000_000
BACKOFF_STEPS: Final = 32

_NOTHING: Final = timedelta(0)
_LIMIT_AND_WAIT: Final = ("LIMIT", "WAIT")


GRAMMAR: Final = """
define_topic = DEFINE TOPIC [exists] name any(KEEP (duration | NONE) | BYTES (bytes_count | NONE)
    | LARGEST (bytes_count | NONE) | DEDUP (duration | NONE) | FULL (DROP | REFUSE) | comment)
alter_topic = ALTER TOPIC name SET list(KEEP (duration | NONE) | BYTES (bytes_count | NONE)
    | LARGEST (bytes_count | NONE) | DEDUP (duration | NONE) | FULL (DROP | REFUSE)
    | COMMENT (string | NONE))
drop_topic = DROP TOPIC name [reason]
trim_topic = TRIM TOPIC name BEFORE expression [reason]
define_reader = DEFINE READER [exists] name ON name [AT position]
alter_reader = ALTER READER name ON name SET POSITION position [reason]
drop_reader = DROP READER name ON name [reason]
commit_reader = COMMIT READER name ON name AT expression
define_group = DEFINE GROUP [exists] name ON name DEADLINE duration any(IN FLIGHT (int | NONE)
    | DELIVERIES (int | NONE) | DEAD LETTER (name | NONE) | BACKOFF (duration {"," duration} | NONE)
    | ORDERED BY KEY) [AT position]
alter_group = ALTER GROUP name ON name SET list(DEADLINE duration | IN FLIGHT (int | NONE)
    | DELIVERIES (int | NONE) | DEAD LETTER (name | NONE)
    | BACKOFF (duration {"," duration} | NONE) | POSITION position) [reason]
drop_group = DROP GROUP name ON name [reason]
position = START | END | TIME expression | expression
bytes_count = size | int
publish = PUBLISH INTO name (VALUE expression any(KEY expression | ID expression
    | HEADERS expression | (DELAY expression | AT expression) | EXPECT expression)
    | VALUES expression any(KEY expression | HEADERS expression
    | (DELAY expression | AT expression) | EXPECT expression))
read_topic = READ FROM name (AFTER expression | AS name) any(LIMIT expression | WAIT expression)
take = TAKE [expression] FROM name AS name any(MEMBER expression | WAIT expression)
ack = ACK handed
nack = NACK handed any(DELAY expression | ERROR expression)
extend = EXTEND handed BY expression
give_up = GIVE UP handed [ERROR expression]
handed = name AS name RECEIPTS expression
redrive = REDRIVE FROM name TO name [LIMIT expression]
"""
GRAMMAR_NOTE: Final = """
The settings of a group stand in any order, DEADLINE among them; behind `AT e`, IN would be an
operator.
"""


class TopicParser(PlaceParser):
    """Parser of statements on topics, readers and groups."""

    # --- declarations -----------------------------------------------------------------------------

    def define_topic(self, at: int) -> tree.Statement:
        exists = self._exists()
        name = self.name("topic")
        return tree.DefineTopic(name, exists, at=at, **self._given(_OF_TOPIC))

    def alter_topic(self, at: int) -> tree.Statement:
        name = self.name("topic")
        self.expect_word("SET")
        changes: Any = self._changes(_OF_TOPIC)
        return tree.AlterTopic(name, tuple(changes.items()), at)

    def drop_topic(self, at: int) -> tree.Statement:
        return tree.DropTopic(self.name("topic"), self._reason(), at)

    def trim_topic(self) -> tree.TrimTopic:
        at = self._begin_statement("TRIM")
        self.expect_word("TOPIC")
        name = self.name("topic")
        self.expect_word("BEFORE")
        return tree.TrimTopic(name, self.expression(), self._reason(), at)

    def define_reader(self, at: int) -> tree.Statement:
        exists = self._exists()
        name, topic = self.on_topic("reader")
        position = self._start_position() if self.take_word("AT") else None
        return tree.DefineReader(name, topic, exists, position, at)

    def alter_reader(self, at: int) -> tree.Statement:
        name, topic = self.on_topic("reader")
        self.expect_word("SET", "POSITION")
        return tree.AlterReader(name, topic, self._start_position(), self._reason(), at)

    def drop_reader(self, at: int) -> tree.Statement:
        return tree.DropReader(*self.on_topic("reader"), self._reason(), at)

    def define_group(self, at: int) -> tree.Statement:
        exists = self._exists()
        name, topic = self.on_topic("group")
        given = self._given(_OF_GROUP)
        if "deadline" not in given:
            self.unexpected("DEADLINE and a duration such as 30s")
        return tree.DefineGroup(name, topic, exists=exists, at=at, **given)

    def alter_group(self, at: int) -> tree.Statement:
        name, topic = self.on_topic("group")
        self.expect_word("SET")
        changes: Any = self._changes(_OF_GROUP)
        position = changes.pop("position", None)
        return tree.AlterGroup(name, topic, position, tuple(changes.items()), self._reason(), at)

    def drop_group(self, at: int) -> tree.Statement:
        return tree.DropGroup(*self.on_topic("group"), self._reason(), at)

    # --- settings ---------------------------------------------------------------------------------

    def _given(self, settings: tuple[_Setting, ...]) -> dict[str, Any]:
        """Parse the settings of a DEFINE, in any order, each at most once."""
        found: dict[str, Any] = {}
        while setting := self._setting({one.define: one for one in settings}, found):
            cleared = setting.alter and setting.clears and self.take_word("NONE")
            found[setting.name] = setting.cleared if cleared else setting.read(self)
        return found

    def _changes(self, settings: tuple[_Setting, ...]) -> dict[str, Any]:
        """Parse the settings of an ALTER, separated by commas, each at most once."""
        found: dict[str, Any] = {}
        by_words = {one.alter: one for one in settings if one.alter}
        while True:
            setting = self._setting(by_words, found)
            if setting is None:
                left = (words for words, one in by_words.items() if one.name not in found)
                self.unexpected(either(*left) or "the end of the statement")
            cleared = setting.clears and self.take_word("NONE")
            found[setting.name] = setting.cleared if cleared else setting.read(self)
            if not self.separated():
                return found

    def _setting(self, by_words: dict[str, _Setting], found: dict[str, Any]) -> _Setting | None:
        """Consume the words of a setting that has not been given yet."""
        for words, one in by_words.items():
            if one.name not in found and self.take_word(*words.split()):
                return one
        return None

    def _lasting(self) -> timedelta:
        """Parse a positive duration."""
        if self.kinds[self.i] != DURATION:
            self.unexpected("a duration such as 5m")
        with self.placed(self.i):
            value = parse_duration(self.texts[self.i])
            if not _NOTHING < value <= LONGEST:
                raise BadRequest("the duration must be above zero and at most 1000 years")
        self.i += 1
        return value

    def _pauses(self) -> tuple[timedelta, ...]:
        """Parse the durations of BACKOFF, separated by commas; zero is allowed."""
        found = [self._pause()]
        while self.is_mark(",") and self.kinds[self.i + 1] == DURATION:
            self.i += 1
            if len(found) == BACKOFF_STEPS:
                self.refuse(BadRequest, f"BACKOFF has at most {BACKOFF_STEPS} steps")
            found.append(self._pause())
        return tuple(found)

    def _pause(self) -> timedelta:
        if self.texts[self.i] in ("0s", "0ms"):
            self.i += 1
            return _NOTHING
        return self._lasting()

    def _size(self, most: int = limits.INT_MAX) -> int:
        if self.kinds[self.i] not in (INT, SIZE):
            self.unexpected("a size such as 10MiB, 500KB or a number of bytes")
        with self.placed(self.i):
            size = parse_size(self.texts[self.i])
            if not 1 <= size <= most:
                raise BadRequest(f"the size must be 1 to {most} bytes", limit=most)
        self.i += 1
        return size

    def _count(self, most: int) -> int:
        if self.kinds[self.i] != INT:
            self.unexpected("a number")
        with self.placed(self.i):
            value = self.number(negative=False).value
            assert isinstance(value, int)
            if not 1 <= value <= most:
                raise BadRequest(f"the number must be 1 to {most}", limit=most)
        return value

    def _text_of_comment(self) -> str:
        return self.string("COMMENT", limits.COMMENT_CHARACTERS)

    def _full(self) -> str:
        word = self.word()
        if word not in ("DROP", "REFUSE"):
            self.unexpected("DROP or REFUSE")
        self.i += 1
        return word

    def _start_position(self) -> tree.Position:
        """Parse the position of a reader or group."""
        if not self.is_mark(":", 1):  # otherwise it is a function's family or a table
            if self.take_word("START"):
                return tree.Position("START")
            if self.take_word("END"):
                return tree.Position("END")
            if self.take_word("TIME"):
                return tree.Position("TIME", self.expression())
        return tree.Position("NUMBER", self.expression())

    # --- messages ---------------------------------------------------------------------------------

    def publish(self) -> tree.Publish:
        at, start = self._begin_statement("PUBLISH"), self.i
        self.expect_word("INTO")
        topic = self.name("topic")
        many = self.take_word("VALUES")
        if not many:
            if self.word() != "VALUE":
                self.unexpected("VALUE or VALUES")
            self.i += 1
        value = self.expression()
        given = self._clauses("KEY", "ID", "HEADERS", "DELAY", "AT", "EXPECT")
        if many and "ID" in given:
            self.refuse(
                BadRequest, "ID belongs to one message: use it with VALUE, not with VALUES", start
            )
        if "DELAY" in given and "AT" in given:
            self.refuse(BadRequest, "a message takes DELAY or AT, not both", start)
        return tree.Publish(
            topic,
            value,
            many,
            given.get("KEY"),
            given.get("ID"),
            given.get("HEADERS"),
            given.get("DELAY"),
            given.get("AT"),
            given.get("EXPECT"),
            at,
        )

    def read_topic(self) -> tree.ReadTopic:
        at = self._begin_statement("READ")
        self.expect_word("FROM")
        topic = self.name("topic")
        after = reader = None
        if self.take_word("AFTER"):
            after = self.expression()
        elif self.take_word("AS"):
            reader = self.name("reader")
        else:
            self.unexpected("AFTER and a position, or AS and a reader")
        given = self._clauses(*_LIMIT_AND_WAIT)
        return tree.ReadTopic(topic, after, reader, given.get("LIMIT"), given.get("WAIT"), at)

    def commit_reader(self) -> tree.CommitReader:
        at = self._begin_statement("COMMIT")
        self.expect_word("READER")
        name, topic = self.on_topic("reader")
        self.expect_word("AT")
        return tree.CommitReader(name, topic, self.expression(), at)

    def take(self) -> tree.Take:
        at = self._begin_statement("TAKE")
        count = None if self.word() == "FROM" else self.expression()
        self.expect_word("FROM")
        topic, group = self._as_group()
        given = self._clauses("MEMBER", "WAIT")
        return tree.Take(topic, group, count, given.get("MEMBER"), given.get("WAIT"), at)

    def ack(self) -> tree.Ack:
        at = self._begin_statement("ACK")
        return tree.Ack(*self._as_group(), self._receipts(), at)

    def nack(self) -> tree.Nack:
        at = self._begin_statement("NACK")
        (topic, group), receipts = self._as_group(), self._receipts()
        given = self._clauses("DELAY", "ERROR")
        return tree.Nack(topic, group, receipts, given.get("DELAY"), given.get("ERROR"), at)

    def extend(self) -> tree.Extend:
        at = self._begin_statement("EXTEND")
        (topic, group), receipts = self._as_group(), self._receipts()
        self.expect_word("BY")
        return tree.Extend(topic, group, receipts, self.expression(), at)

    def give_up(self) -> tree.GiveUp:
        at = self._begin_statement("GIVE")
        self.expect_word("UP")
        (topic, group), receipts = self._as_group(), self._receipts()
        return tree.GiveUp(topic, group, receipts, self._clauses("ERROR").get("ERROR"), at)

    def redrive(self) -> tree.Redrive:
        at = self._begin_statement("REDRIVE")
        self.expect_word("FROM")
        dead = self.name("topic")
        self.expect_word("TO")
        topic = self.name("topic")
        return tree.Redrive(dead, topic, self._clauses("LIMIT").get("LIMIT"), at)

    def _as_group(self) -> tuple[str, str]:
        """Parse `t AS g`."""
        topic = self.name("topic")
        self.expect_word("AS")
        return topic, self.name("group")

    def _receipts(self) -> tree.Expression:
        self.expect_word("RECEIPTS")
        return self.expression()

    def _clauses(self, *words: str) -> dict[str, tree.Expression]:
        """Parse clauses of one expression each, in any order, each at most once."""
        found: dict[str, tree.Expression] = {}
        while (word := self.word()) in words and word not in found:
            self.i += 1
            found[word] = self.expression()
        return found


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting of a topic or group: its words in DEFINE and in ALTER, and its field in the AST.

    Empty words: the setting is not allowed there.
    """

    name: str
    define: str
    read: Callable[[TopicParser], Any]
    alter: str = ""
    clears: bool = True
    """True if ALTER accepts NONE for it."""
    cleared: Any = None


def _altered(name: str, words: str, read: Callable[[TopicParser], Any], **more: Any) -> _Setting:
    return _Setting(name, words, read, words, **more)


_OF_TOPIC: Final = (
    _altered("keep", "KEEP", TopicParser._lasting),
    _altered("max_bytes", "BYTES", TopicParser._size),
    _altered("largest", "LARGEST", lambda parser: parser._size(limits.MESSAGE_BYTES)),
    _altered("dedup", "DEDUP", TopicParser._lasting),
    _altered("full", "FULL", TopicParser._full, clears=False),
    _altered("comment", "COMMENT", TopicParser._text_of_comment),
)
_OF_GROUP: Final = (
    _altered("deadline", "DEADLINE", TopicParser._lasting, clears=False),
    _altered("in_flight", "IN FLIGHT", lambda parser: parser._count(IN_FLIGHT_MOST)),
    _altered("deliveries", "DELIVERIES", lambda parser: parser._count(DELIVERIES_MOST)),
    _altered("dead_letter", "DEAD LETTER", lambda parser: parser.name("topic")),
    _altered("backoff", "BACKOFF", TopicParser._pauses, cleared=()),
    _Setting("ordered", "ORDERED BY KEY", lambda parser: True),
    _Setting("position", "AT", TopicParser._start_position, "POSITION", clears=False),
)
DEFINES["TOPIC"] = TopicParser.define_topic
DEFINES["READER"] = TopicParser.define_reader
DEFINES["GROUP"] = TopicParser.define_group
ALTERS["TOPIC"] = TopicParser.alter_topic
ALTERS["READER"] = TopicParser.alter_reader
ALTERS["GROUP"] = TopicParser.alter_group
DROPS["TOPIC"] = TopicParser.drop_topic
DROPS["READER"] = TopicParser.drop_reader
DROPS["GROUP"] = TopicParser.drop_group
