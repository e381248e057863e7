"""The state table of a connection, cell by cell."""

from __future__ import annotations

import pytest

from protocol import limits
from protocol.conversation import HELLO_BYTES, Conversation, State
from protocol.errors import AnswerTooLarge, BadRequest, TooLarge
from protocol.frames import FROM_CLIENT, FROM_NODE, Kind, encode


def fresh() -> Conversation:
    return Conversation()


def state(talk: Conversation) -> State:
    """The state now: asked through a call, which the type checker does not take for a constant."""
    return talk.state


def opened(known: bool = True) -> Conversation:
    talk = fresh()
    talk.known = known
    talk.receive(encode(Kind.HELLO, 0, {}))
    assert talk.next() is not None
    talk.send(Kind.WELCOME, 0, {})
    return talk


def test_a_greeting_opens_the_conversation() -> None:
    talk = fresh()
    assert state(talk) is State.AWAITING_HELLO
    talk.receive(encode(Kind.HELLO, 0, {"magic": "STORE"}))
    assert talk.next() is not None
    assert state(talk) is State.SIGNING_IN
    talk.send(Kind.WELCOME, 0, {})
    assert state(talk) is State.OPEN
    assert talk.welcomed


@pytest.mark.parametrize("kind", sorted((FROM_CLIENT | FROM_NODE) - {Kind.HELLO, Kind.BYE}))
def test_nothing_but_hello_comes_first(kind: Kind) -> None:
    talk = fresh()
    talk.receive(encode(kind, 1, {}))
    with pytest.raises(BadRequest):
        talk.next()


def test_bye_instead_of_hello_ends_it() -> None:
    talk = fresh()
    talk.receive(encode(Kind.BYE, 0))
    assert talk.next() is not None
    assert state(talk) is State.CLOSED


def test_a_stranger_has_little_room() -> None:
    talk = fresh()
    talk.receive((HELLO_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(TooLarge):
        talk.next()
    talk = opened(known=False)
    talk.receive((HELLO_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(TooLarge):  # a HELLO without a user is no way around it
        talk.next()
    talk = opened()
    talk.receive((HELLO_BYTES + 1).to_bytes(4, "big"))
    assert talk.next() is None
    assert talk.awaited == 4 + HELLO_BYTES + 1


def test_what_follows_hello_waits_for_its_answer() -> None:
    talk = fresh()
    talk.receive(encode(Kind.HELLO, 0, {}) + encode(Kind.PING, 1) + encode(Kind.PING, 2))
    assert talk.next() is not None
    assert talk.next() is None
    assert talk.unread > 0
    talk.send(Kind.WELCOME, 0, {})
    first, second = talk.next(), talk.next()
    assert first is not None
    assert second is not None
    assert (first.id, second.id) == (1, 2)


def test_a_refused_greeting_closes() -> None:
    talk = fresh()
    talk.receive(encode(Kind.HELLO, 7, {}) + encode(Kind.PING, 1))
    assert talk.next() is not None
    talk.send(Kind.REFUSED, 7, {"error": {}})
    assert state(talk) is State.CLOSED
    assert not talk.welcomed
    assert talk.next() is None


@pytest.mark.parametrize("answer", [Kind.WELCOME, Kind.ERROR])
def test_auth_holds_back_what_follows_it(answer: Kind) -> None:
    talk = opened()
    talk.receive(encode(Kind.RUN, 1, {}) + encode(Kind.AUTH, 2, {}) + encode(Kind.RUN, 3, {}))
    assert talk.next() is not None
    assert talk.next() is not None
    assert state(talk) is State.SIGNING_IN
    assert talk.next() is None
    talk.send(Kind.ANSWER, 1, {})  # what came before it may be answered meanwhile
    assert talk.next() is None
    talk.send(answer, 2, {})
    assert state(talk) is State.OPEN
    held = talk.next()
    assert held is not None
    assert held.id == 3


@pytest.mark.parametrize("kind", [Kind.RUN, Kind.WATCH, Kind.PING, Kind.AUTH])
def test_an_open_id_is_not_opened_again(kind: Kind) -> None:
    talk = opened()
    talk.receive(encode(Kind.RUN, 5, {}) + encode(kind, 5, {}))
    assert talk.next() is not None
    with pytest.raises(BadRequest):
        talk.next()


@pytest.mark.parametrize("kind", [Kind.RUN, Kind.WATCH, Kind.PING, Kind.AUTH])
def test_id_0_is_no_request(kind: Kind) -> None:
    talk = opened()
    talk.receive(encode(kind, 0, {}))
    with pytest.raises(BadRequest):
        talk.next()


def test_an_answered_id_may_be_opened_again() -> None:
    talk = opened()
    for _ in range(3):
        talk.receive(encode(Kind.RUN, 5, {}))
        assert talk.next() is not None
        talk.send(Kind.ANSWER, 5, {})
    assert not talk.open


def test_answering_twice_is_a_bug() -> None:
    talk = opened()
    talk.receive(encode(Kind.PING, 5))
    assert talk.next() is not None
    talk.send(Kind.PONG, 5)
    with pytest.raises(AssertionError):
        talk.send(Kind.PONG, 5)


@pytest.mark.parametrize("end", [Kind.ANSWER, Kind.ERROR])
def test_a_watch_is_open_until_it_is_answered_however_much_it_tells(end: Kind) -> None:
    talk = opened()
    talk.receive(encode(Kind.WATCH, 5, {}) + encode(Kind.UNWATCH, 5) + encode(Kind.BYE, 0))
    assert talk.next() is not None
    for _ in range(3):
        talk.send(Kind.CHANGE, 5, {})
    assert talk.next() is not None
    assert talk.next() is not None
    assert state(talk) is State.LEAVING
    talk.send(Kind.CHANGE, 5, {})
    assert list(talk.open) == [5]
    talk.send(end, 5, {})
    assert state(talk) is State.CLOSED


def test_telling_on_what_is_not_open_is_a_bug() -> None:
    talk = opened()
    talk.receive(encode(Kind.WATCH, 5, {}))
    assert talk.next() is not None
    with pytest.raises(AssertionError):
        talk.send(Kind.CHANGE, 6, {})
    talk.send(Kind.ANSWER, 5, {})
    with pytest.raises(AssertionError):
        talk.send(Kind.CHANGE, 5, {})


@pytest.mark.parametrize("kind", sorted((FROM_NODE - FROM_CLIENT) | {Kind.HELLO}))
def test_what_a_client_never_says_once_open(kind: Kind) -> None:
    talk = opened()
    talk.receive(encode(kind, 1, {}))
    with pytest.raises(BadRequest):
        talk.next()


@pytest.mark.parametrize("kind", [Kind.CANCEL, Kind.UNWATCH])
def test_what_asks_for_an_end_opens_nothing(kind: Kind) -> None:
    talk = opened()
    talk.receive(encode(kind, 99))
    assert talk.next() is not None
    assert not talk.open


def test_bye_lets_what_is_open_be_answered() -> None:
    talk = opened()
    talk.receive(encode(Kind.RUN, 1, {}) + encode(Kind.BYE, 0) + encode(Kind.RUN, 2, {}))
    assert talk.next() is not None
    assert talk.next() is not None
    assert state(talk) is State.LEAVING
    assert talk.next() is None
    talk.receive(encode(Kind.RUN, 3, {}))
    assert talk.next() is None
    talk.send(Kind.ERROR, 1, {})
    assert state(talk) is State.CLOSED


def test_bye_with_nothing_open_closes() -> None:
    talk = opened()
    talk.receive(encode(Kind.BYE, 0))
    assert talk.next() is not None
    assert state(talk) is State.CLOSED


def test_the_nodes_own_bye_changes_nothing() -> None:
    talk = opened()
    talk.receive(encode(Kind.RUN, 1, {}))
    assert talk.next() is not None
    talk.send(Kind.BYE, 0)
    assert state(talk) is State.OPEN
    talk.send(Kind.ANSWER, 1, {})


def test_an_answer_too_large_leaves_room_for_another() -> None:
    talk = opened()
    talk.receive(encode(Kind.RUN, 1, {}))
    assert talk.next() is not None
    with pytest.raises(AnswerTooLarge):
        talk.send(Kind.ANSWER, 1, {"v": bytes(limits.FRAME_BYTES)})
    talk.send(Kind.ERROR, 1, {})
    assert not talk.open
