"""The ways to ask an actor and to tell it something."""

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
    """Send a request; await what this returns for the reply.

    Raises what the actor refused with; `Busy` at once when its mailbox is full; `Draining` when it
    is gone. A waiter that is cancelled leaves the actor's work alone.
    """
    future: LoopFuture[Reply] = ref.ask(request, block=False)  # type: ignore[assignment]
    return future.waiter


def ask_now(ref: ActorRef[Any], request: Request[Reply]) -> asyncio.Future[Reply]:
    """As `ask`, but an idle loop actor handles the request before this returns, which saves a turn
    of the loop or two. For a caller that asks one thing in a turn: a mailbox is what shares the
    loop between many.
    """
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
    """As `ask_now`, but a reply that is there already comes as it is, and a refusal is raised:
    half of what a short request costs is else the future around its answer."""
    inbox = ref.actor_inbox
    if isinstance(inbox, LoopInbox) and not inbox.scheduled:
        return inbox.handle_now(request)  # type: ignore[no-any-return]
    future: LoopFuture[Reply] = ref.ask(request, block=False)  # type: ignore[assignment]
    return future.waiter


def tell_now(ref: ActorRef[Any], message: object) -> None:
    """As `tell`, to a loop actor, which handles the message before this returns if it is idle."""
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
    """Stop an actor after what is in its mailbox, and wait until it is gone."""
    if ref.is_alive():
        with suppress(Draining):  # it went by itself meanwhile
            await ask(ref, Stop())
    actor = ref._actor_weakref()
    if isinstance(actor, ThreadActor):
        actor.join()
