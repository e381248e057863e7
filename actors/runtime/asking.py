"""Ways to send an actor a request (`ask`) or a message without reply (`tell`)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, TypeVar

from pykka import ActorRef
from pykka._envelope import Envelope

from actors.runtime.actor import LoopFuture, Stop
from actors.runtime.inboxes import LoopInbox
from actors.runtime.threads import ThreadActor
from protocol.errors import Draining
from protocol.requests import Request

Reply = TypeVar("Reply")


def ask(ref: ActorRef[Any], request: Request[Reply]) -> asyncio.Future[Reply]:
    """Send a request; await the returned future for the reply.

    Cancelling the future leaves the actor's work alone.

    :raises Busy: at once; the mailbox is full
    :raises Draining: from the future; the actor is gone
    :raises Refusal: from the future; the actor refused
    """
    future: LoopFuture[Reply] = ref.ask(request, block=False)  # type: ignore[assignment]
    return future.waiter


def ask_now(ref: ActorRef[Any], request: Request[Reply]) -> asyncio.Future[Reply]:
    """Like `ask`, but an idle loop actor handles the request before this returns, which saves an
    iteration of the loop or two. For a caller with one request per iteration: with many, the
    mailbox shares the loop fairly."""
    try:
        reply = call_now(ref, request)
    except Exception as error:
        future: LoopFuture[Reply] = LoopFuture()
        future.fail(error)
        return future.waiter
    if isinstance(reply, asyncio.Future):
        return reply
    waiter: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    waiter.set_result(reply)
    return waiter


def call_now(ref: ActorRef[Any], request: Request[Reply]) -> Reply | asyncio.Future[Reply]:
    """Like `ask_now`, but return a reply that is there already as it is, and raise a refusal. The
    future around the answer would be half of the cost of a short request."""
    inbox = ref.actor_inbox
    if isinstance(inbox, LoopInbox) and not inbox.scheduled:
        return inbox.handle_now(request)  # type: ignore[no-any-return]
    future: LoopFuture[Reply] = ref.ask(request, block=False)  # type: ignore[assignment]
    return future.waiter


def tell_now(ref: ActorRef[Any], message: object) -> None:
    """Like `tell`, to a loop actor, which handles the message before this returns if it is idle."""
    inbox = ref.actor_inbox
    if isinstance(inbox, LoopInbox) and not inbox.scheduled:
        inbox.take_now(message)
    else:
        tell(ref, message)


def tell(ref: ActorRef[Any], message: object) -> None:
    """Send a message that has no reply. One to an actor that is gone is lost; a full mailbox takes
    it."""
    if ref.is_alive():
        ref.actor_inbox.put(Envelope(message))


async def stop(ref: ActorRef[Any]) -> None:
    """Stop an actor after the messages in its mailbox, and wait until it is gone."""
    if ref.is_alive():
        with suppress(Draining):  # it went by itself meanwhile
            await ask(ref, Stop())
    actor = ref._actor_weakref()
    if isinstance(actor, ThreadActor):
        actor.join()
