"""The state table of a connection, cell by cell."""

from __future__ import annotations

import pytest

from protocol import limits
from protocol.conversation import HELLO_BYTES, ConnectionState, Conversation
from protocol.errors import AnswerTooLarge, BadRequest, TooLarge
from protocol.frames import FROM_CLIENT, FROM_NODE, MessageKind, encode


def fresh() -> Conversation:
    return Conversation()


def state(talk: Conversation) -> ConnectionState:
    """The state now: asked through a call, which the type checker does not take for a constant."""
    return talk.state


def opened(known: bool = True) -> Conversation:
    talk = fresh()
    talk.known = known
    talk.receive(encode(MessageKind.HELLO, 0, {}))
    assert talk.next() is not None
    talk.send(MessageKind.WELCOME, 0, {})
    return talk


def test_a_greeting_opens_the_conversation() -> None:
    talk = fresh()
    assert state(talk) is ConnectionState.AWAITING_HELLO
    talk.receive(encode(MessageKind.HELLO, 0, {"magic": "STORE"}))
    assert talk.next() is not None
    assert state(talk) is ConnectionState.SIGNING_IN
    talk.send(MessageKind.WELCOME, 0, {})
    assert state(talk) is ConnectionState.OPEN
    assert talk.welcomed


@pytest.mark.parametrize(
    "kind", sorted((FROM_CLIENT | FROM_NODE) - {MessageKind.HELLO, MessageKind.BYE})
)
def test_nothing_but_hello_comes_first(kind: MessageKind) -> None:
    talk = fresh()
    talk.receive(encode(kind, 1, {}))
    with pytest.raises(BadRequest):
        talk.next()


def test_bye_instead_of_hello_ends_it() -> None:
    talk = fresh()
    talk.receive(encode(MessageKind.BYE, 0))
    assert talk.next() is not None
    assert state(talk) is ConnectionState.CLOSED


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
    talk.receive(
        encode(MessageKind.HELLO, 0, {}) + encode(MessageKind.PING, 1) + encode(MessageKind.PING, 2)
    )
    assert talk.next() is not None
    assert talk.next() is None
    assert talk.unread > 0
    talk.send(MessageKind.WELCOME, 0, {})
    first, second = talk.next(), talk.next()
    assert first is not None
    assert second is not None
    assert (first.id, second.id) == (1, 2)


def test_a_refused_greeting_closes() -> None:
    talk = fresh()
    talk.receive(encode(MessageKind.HELLO, 7, {}) + encode(MessageKind.PING, 1))
    assert talk.next() is not None
    talk.send(MessageKind.REFUSED, 7, {"error": {}})
    assert state(talk) is ConnectionState.CLOSED
    assert not talk.welcomed
    assert talk.next() is None


@pytest.mark.parametrize("answer", [MessageKind.WELCOME, MessageKind.ERROR])
def test_auth_holds_back_what_follows_it(answer: MessageKind) -> None:
    talk = opened()
    talk.receive(
        encode(MessageKind.RUN, 1, {})
        + encode(MessageKind.AUTH, 2, {})
        + encode(MessageKind.RUN, 3, {})
    )
    assert talk.next() is not None
    assert talk.next() is not None
    assert state(talk) is ConnectionState.SIGNING_IN
    assert talk.next() is None
    talk.send(MessageKind.ANSWER, 1, {})  # what came before it may be answered meanwhile
    assert talk.next() is None
    talk.send(answer, 2, {})
    assert state(talk) is ConnectionState.OPEN
    held = talk.next()
    assert held is not None
    assert held.id == 3


@pytest.mark.parametrize(
    "kind", [MessageKind.RUN, MessageKind.WATCH, MessageKind.PING, MessageKind.AUTH]
)
def test_an_open_id_is_not_opened_again(kind: MessageKind) -> None:
    talk = opened()
    talk.receive(encode(MessageKind.RUN, 5, {}) + encode(kind, 5, {}))
    assert talk.next() is not None
    with pytest.raises(BadRequest):
        talk.next()


@pytest.mark.parametrize(
    "kind", [MessageKind.RUN, MessageKind.WATCH, MessageKind.PING, MessageKind.AUTH]
)
def test_id_0_is_no_request(kind: MessageKind) -> None:
    talk = opened()
    talk.receive(encode(kind, 0, {}))
    with pytest.raises(BadRequest):
        talk.next()


def test_an_answered_id_may_be_opened_again() -> None:
    talk = opened()
    for _ in range(3):
        talk.receive(encode(MessageKind.RUN, 5, {}))
        assert talk.next() is not None
        talk.send(MessageKind.ANSWER, 5, {})
    assert not talk.open


def test_answering_twice_is_a_bug() -> None:
    talk = opened()
    talk.receive(encode(MessageKind.PING, 5))
    assert talk.next() is not None
    talk.send(MessageKind.PONG, 5)
    with pytest.raises(AssertionError):
        talk.send(MessageKind.PONG, 5)


@pytest.mark.parametrize("end", [MessageKind.ANSWER, MessageKind.ERROR])
def test_a_watch_is_open_until_it_is_answered_however_much_it_tells(end: MessageKind) -> None:
    talk = opened()
    talk.receive(
        encode(MessageKind.WATCH, 5, {})
        + encode(MessageKind.UNWATCH, 5)
        + encode(MessageKind.BYE, 0)
    )
    assert talk.next() is not None
    for _ in range(3):
        talk.send(MessageKind.CHANGE, 5, {})
    assert talk.next() is not None
    assert talk.next() is not None
    assert state(talk) is ConnectionState.LEAVING
    talk.send(MessageKind.CHANGE, 5, {})
    assert list(talk.open) == [5]
    talk.send(end, 5, {})
    assert state(talk) is ConnectionState.CLOSED


def test_telling_on_what_is_not_open_is_a_bug() -> None:
    talk = opened()
    talk.receive(encode(MessageKind.WATCH, 5, {}))
    assert talk.next() is not None
    with pytest.raises(AssertionError):
        talk.send(MessageKind.CHANGE, 6, {})
    talk.send(MessageKind.ANSWER, 5, {})
    with pytest.raises(AssertionError):
        talk.send(MessageKind.CHANGE, 5, {})


@pytest.mark.parametrize("kind", sorted((FROM_NODE - FROM_CLIENT) | {MessageKind.HELLO}))
def test_what_a_client_never_says_once_open(kind: MessageKind) -> None:
    talk = opened()
    talk.receive(encode(kind, 1, {}))
    with pytest.raises(BadRequest):
        talk.next()


@pytest.mark.parametrize("kind", [MessageKind.CANCEL, MessageKind.UNWATCH])
def test_what_asks_for_an_end_opens_nothing(kind: MessageKind) -> None:
    talk = opened()
    talk.receive(encode(kind, 99))
    assert talk.next() is not None
    assert not talk.open


def test_bye_lets_what_is_open_be_answered() -> None:
    talk = opened()
    talk.receive(
        encode(MessageKind.RUN, 1, {}) + encode(MessageKind.BYE, 0) + encode(MessageKind.RUN, 2, {})
    )
    assert talk.next() is not None
    assert talk.next() is not None
    assert state(talk) is ConnectionState.LEAVING
    assert talk.next() is None
    talk.receive(encode(MessageKind.RUN, 3, {}))
    assert talk.next() is None
    talk.send(MessageKind.ERROR, 1, {})
    assert state(talk) is ConnectionState.CLOSED


def test_bye_with_nothing_open_closes() -> None:
    talk = opened()
    talk.receive(encode(MessageKind.BYE, 0))
    assert talk.next() is not None
    assert state(talk) is ConnectionState.CLOSED


def test_the_nodes_own_bye_changes_nothing() -> None:
    talk = opened()
    talk.receive(encode(MessageKind.RUN, 1, {}))
    assert talk.next() is not None
    talk.send(MessageKind.BYE, 0)
    assert state(talk) is ConnectionState.OPEN
    talk.send(MessageKind.ANSWER, 1, {})


def test_an_answer_too_large_leaves_room_for_another() -> None:
    talk = opened()
    talk.receive(encode(MessageKind.RUN, 1, {}))
    assert talk.next() is not None
    with pytest.raises(AnswerTooLarge):
        talk.send(MessageKind.ANSWER, 1, {"v": bytes(limits.FRAME_BYTES)})
    talk.send(MessageKind.ERROR, 1, {})
    assert not talk.open
