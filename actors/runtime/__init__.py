"""How an actor is run: the only room that knows. Everything else sees messages and replies.

Two kinds of actor stand on `pykka.Actor`, made through the three hooks Pykka has for it:

- `LoopActor` (loop.py): its mailbox is drained by the event loop, a bounded slice at a time. A
  handler may return an awaitable (`async def`), and the reply follows it. It is asked and told on
  the loop's thread only.
- `ThreadActor` (threads.py): has a thread of its own for work that blocks. It takes all that waits
  in its mailbox as one batch. What it has to say goes to the loop through `Runtime.cross`.

`asking.py` has the ways to ask and tell, `actor.py` what both kinds share, `urgent.py` how a thread
gets the interpreter from a busy loop, `supervision.py` who takes a failed actor's place,
`replies.py` replies that are heard of without a turn of the loop.

Invariants:

- A mailbox is bounded: what is asked and too much is refused with `Busy` on the sender's side. Stop
  and what is told are always taken: who tells has nobody to refuse, and tells at most one thing of
  each that was asked for.
- Nobody waits for an actor by blocking: `LoopFuture.get` on an unfinished future is an error.
- A refusal is an answer. Any other exception that nobody waits for is a failure: the actor stops
  and the node hears of it (`Runtime.failed`). One that somebody waits for is answered, and the node
  hears of it too (`Runtime.noticed`): an engine that fails ends it.
- What an actor does by itself may meet a part of the state that can't be read, and so would whoever
  took its place: it says so (`Runtime.noticed`), leaves that alone for a while, and does the rest.
- In simulation (`Scheduler.threads` is false) thread actors are drained on the loop, so that one
  seed decides every interleaving.
"""

from actors.runtime.actor import Actor, LoopFuture, Runtime, Stop, handles
from actors.runtime.asking import ask, ask_now, call_now, stop, tell, tell_now
from actors.runtime.loop import REST_SECONDS, LoopActor, Slices
from actors.runtime.replies import Reply
from actors.runtime.supervision import Supervised
from actors.runtime.threads import ThreadActor
from actors.runtime.urgent import Urgent

__all__ = [
    "REST_SECONDS", "Actor", "LoopActor", "LoopFuture", "Reply", "Runtime", "Slices", "Stop",
    "Supervised", "ThreadActor", "Urgent", "ask", "ask_now", "call_now", "handles", "stop", "tell",
    "tell_now",
]  # fmt: skip
