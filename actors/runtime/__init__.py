"""Actor runtime on Pykka: mailboxes, replies, supervision. Other rooms see messages and replies
only.

Two kinds of actor derive from `pykka.Actor`, through the three hooks that Pykka has for it:

- `LoopActor` (loop.py): the event loop drains its mailbox, a bounded slice at a time. A handler may
  return an awaitable (`async def`), and the reply follows it. Requests and messages to it are sent
  on the loop's thread only.
- `ThreadActor` (threads.py): has a thread of its own for blocking work. It takes all waiting
  messages of its mailbox as one batch. Its results reach the loop through `Runtime.cross`.

`asking.py` has the ways to send requests (`ask`) and messages without reply (`tell`); `actor.py`
the common base; `gil_yield.py` yields the interpreter lock (GIL) of a busy loop to a waiting
thread; `supervision.py` restarts failed actors; `replies.py` has futures whose callbacks run
without another iteration of the loop.

Invariants:

- Backpressure: a mailbox is bounded, and a request to a full one is refused with `Busy` on the
  sender's side. Stop and messages without reply are always accepted: their sender has no caller to
  refuse, and sends at most one for each request accepted before.
- No caller blocks on an actor: `LoopFuture.get` on an unfinished future is an error.
- A refusal is an answer. Any other exception of a message without reply is a failure: the actor
  stops and the node is notified (`Runtime.failed`). Any other exception of a request is its answer,
  and the node is notified too (`Runtime.report_error`); a failed engine ends the node.
- Background work of an actor may meet an unreadable part of the state; a restarted actor would meet
  it again. The actor reports it (`Runtime.report_error`), skips that part for a while, and does the
  rest.
- In simulation (`Scheduler.threads` is false) thread actors are drained on the loop, so that one
  seed decides every interleaving.
"""

from actors.runtime.actor import Actor, LoopFuture, Runtime, Stop, handles
from actors.runtime.asking import ask, ask_now, call_now, stop, tell, tell_now
from actors.runtime.gil_yield import GilYield
from actors.runtime.loop import REST_SECONDS, LoopActor, Slices
from actors.runtime.replies import Reply
from actors.runtime.supervision import Supervised
from actors.runtime.threads import ThreadActor

__all__ = [
    "REST_SECONDS", "Actor", "LoopActor", "LoopFuture", "Reply", "Runtime", "Slices", "Stop",
    "Supervised", "ThreadActor", "GilYield", "ask", "ask_now", "call_now", "handles", "stop",
    "tell", "tell_now",
]  # fmt: skip
