"""POST /script: a script in, its results out. A hot route, so a lean delegate."""

from __future__ import annotations

from functools import partial
from typing import Any

from actors.runtime import call_now
from actors.scripts.administering import administers
from protocol import limits
from protocol.errors import Refusal
from protocol.requests import Caller, RunScript, ScriptAnswer
from protocol.values import LONG, Value, is_large, let_go
from surfaces.http import answers, results
from surfaces.http.body_weights import read_counted
from surfaces.http.callers import caller_now
from surfaces.http.exchange import Exchange
from surfaces.http.running import RunningDelegate
from surfaces.http.script_request import ScriptRequest, read


class ScriptDelegate(RunningDelegate):
    """Delegate of one script request."""

    _held: list[Value] | None = None
    """Values of a large response, to be freed in slices."""

    async def _run(self) -> None:
        await super()._run()
        if self._held:
            # Not inside `_answer`: the next request of this connection may be running already, and
            # an error here must not be answered as its failure.
            held, self._held = self._held, None
            await self._surface.long_work.run(self._exchange.user, partial(let_go, held))

    async def _answer(self) -> None:
        exchange = self._exchange
        head = exchange.head
        assert head is not None
        exchange.msgpack = head.wants_msgpack
        known = caller_now(exchange)
        who = known if isinstance(known, Caller) else await known
        asked, who = await read_counted(exchange, who, partial(read, head), LONG, _held)
        if exchange.connection.closed:
            return  # gone before it began
        run = RunScript(
            who, asked.script, exchange.request, asked.parameters, asked.namespace,
            asked.database, asked.timeout_us, asked.reason,
            moment=asked.moment, keep_us=asked.keep_us, record=asked.record,
            after=asked.after, current=asked.current,
        )  # fmt: skip
        self._running = True
        found = call_now(self._surface.node.scripts, run)
        del run, asked
        answer = found if isinstance(found, ScriptAnswer) else await found
        exchange.committed = answer.committed
        large = is_large([result.value for result in answer.results], results.SMALL)
        if not exchange.connection.closed:
            form = results.MSGPACK if exchange.msgpack else results.JSON
            beside = self._beside(form, answer)
            if large:
                work = self._surface.long_work
                body = await results.in_turns(form, answer.results, beside, work, who.user)
            else:
                body = results.whole(form, answer.results, beside)
            self._reply(form, body, answer.refusal)
        if large:
            self._held = [result.value for result in answer.results]

    def _beside(self, form: results.ResponseEncoding, answer: ScriptAnswer) -> dict[str, Any]:
        """Return the response fields besides the results."""
        if answer.refusal is not None:
            said = answers.error(answer.refusal, self._exchange.request)
            self._exchange.log_refusal(said)
            return {"error": form.plain(said)}
        beside = {
            "seq": answer.sequence,
            "store": answer.store,
            "epoch": answer.epoch,
            "ns": answer.namespace,
            "db": answer.database,
        }
        if answer.moment is not None:
            beside["moment"] = answer.moment
        return beside

    def _reply(self, form: results.ResponseEncoding, body: bytes, refusal: Refusal | None) -> None:
        exchange = self._exchange
        if refusal is None:
            exchange.reply(200, body, form.kind)
            return
        status = answers.status_of(refusal, exchange.by_page)
        exchange.reply(status, body, form.kind, answers.error_fields(refusal))


def _held(asked: ScriptRequest) -> list[Value]:
    """Return the parts of a request that may be many times its received size."""
    return [asked.script, asked.parameters]


def only_administers(exchange: Exchange) -> bool:
    """True if a request only lists or ends running work. Its body is kept."""
    head, route, body = exchange.head, exchange.route, exchange.body
    if head is None or route is None or route.lean is not ScriptDelegate:
        return False
    if len(body) > limits.ADMINISTERING_CHARACTERS:
        return False
    try:
        return administers(read(head, body).script)
    except Refusal:
        return False
