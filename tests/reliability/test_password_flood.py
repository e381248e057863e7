"""What a flood of wrong passwords costs those who work, and those who come with the right one."""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Final

import pytest
from argon2 import PasswordHasher

from actors import sign_in_throttle
from actors.passwords import Cost
from protocol.frames import MessageKind
from tests.processes import NodeProcess, serving
from tests.reliability.floods import Addresses, Flood, Work, flooding, worked
from tests.surfaces.served import served

Figure = Callable[[str, object], None]

PASSWORD: Final = "correct horse battery"
WORKERS: Final = tuple(f"worker{number}" for number in range(8))
KNOWN: Final = "known"
NEWCOMERS: Final = tuple(f"newcomer{number}" for number in range(40))
FLOODS: Final = {
    "existing users": (WORKERS, 0.0),
    "made-up users": ((), 1.0),
    "both": (WORKERS, 0.5),
}
SECONDS: Final = 6.0


@pytest.fixture(scope="module", autouse=True)
def tracker() -> None:
    """The pipe that multiprocessing keeps open for ever is there before descriptors are counted."""
    resource_tracker.ensure_running()


def signed_in(at: Addresses, user: str, address: str) -> tuple[float, str | None]:
    """How long POST /session with the right password took, and its token; None: it was refused."""
    connection = http.client.HTTPConnection(*at.http, timeout=120, source_address=(address, 0))
    pair = b64encode(f"{user}:{PASSWORD}".encode()).decode()
    began = time.perf_counter()
    try:
        connection.request("POST", "/session", headers={"Authorization": f"Basic {pair}"})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    took = time.perf_counter() - began
    return took, body.split(b'"token":"')[1].split(b'"')[
        0
    ].decode() if answer.status == 200 else None


class SignIns:
    """Right sign-ins one after the other, by somebody who has signed in before and by newcomers,
    each from an address of its own."""

    def __init__(self, at: Addresses, newcomers: list[str]) -> None:
        self._at = at
        self._newcomers = newcomers
        self._over = threading.Event()
        self._threads = [threading.Thread(target=one) for one in (self._known, self._new)]
        self.took: dict[str, list[float]] = {"known": [], "newcomer": []}
        self.refused: Counter[str] = Counter()

    def __enter__(self) -> SignIns:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_how: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _known(self) -> None:
        while not self._over.is_set():
            self._one("known", KNOWN, "127.2.0.1")

    def _new(self) -> None:
        while not self._over.is_set() and self._newcomers:
            user = self._newcomers.pop()
            self._one("newcomer", user, f"127.3.0.{NEWCOMERS.index(user) + 1}")

    def _one(self, kind: str, user: str, address: str) -> None:
        took, token = signed_in(self._at, user, address)
        self.took[kind].append(took)
        self.refused[kind] += token is None


def prepare(node: NodeProcess) -> None:
    define = ["DEFINE NAMESPACE shop", "DEFINE DATABASE shop.main", "USE shop.main"]
    define += ["DEFINE TABLE person", *(f"CREATE person:{nth} SET n = 0" for nth in range(1, 9))]
    answer = node.script("; ".join(define))
    assert "error" not in answer, answer
    for user in (*WORKERS, KNOWN, *NEWCOMERS):
        answer = node.script(f"DEFINE USER {user} ROLE editor PASSWORD '{PASSWORD}'")
        assert "error" not in answer, answer


def told(took: list[float]) -> str:
    """The median and the 99th of a hundred, in milliseconds."""
    if not took:
        return "none"
    late = sorted(took)
    p50, p99 = late[len(late) // 2] * 1e3, late[len(late) * 99 // 100] * 1e3
    return f"p50 {p50:.1f} p99 {p99:.1f} most {late[-1] * 1e3:.1f} ms of {len(late)}"


@pytest.mark.hard
def test_who_has_a_token_works_on_in_a_flood_of_wrong_passwords(
    tmp_path: Path, figure: Figure
) -> None:
    with serving(tmp_path / "store") as node:
        at = Addresses(node.address("http"), node.address("wire"))
        prepare(node)
        assert signed_in(at, KNOWN, "127.2.0.1")[1] is not None
        tokens = [signed_in(at, user, "127.0.0.1")[1] for user in WORKERS]
        work = Work(at, tuple(token for token in tokens if token is not None), SECONDS)
        assert len(work.tokens) == len(WORKERS)
        newcomers, share = list(NEWCOMERS), len(NEWCOMERS) // len(FLOODS)
        for name, (users, made_up) in FLOODS.items():
            times: dict[bool, list[float]] = {False: [], True: []}
            counts: Counter[str] = Counter()
            came = [newcomers.pop() for _ in range(share)]
            signs: dict[str, list[float]] = {"known": [], "newcomer": []}
            refused: Counter[str] = Counter()
            for flooded in (False, True, True, False):
                flood = flooding(Flood(at, users, made_up)) if flooded else nullcontext(Counter)
                with flood as end, SignIns(at, came) if flooded else nullcontext() as signing:
                    times[flooded] += worked(work)
                    counts += end()
                if signing is not None:
                    refused += signing.refused
                    for kind, took in signing.took.items():
                        signs[kind] += took
            assert sum(counts.values()), "nobody tried a password"
            assert times[True], "no user with a token was answered"
            tries = ", ".join(f"{how} {count}" for how, count in sorted(counts.items()))
            figure(f"flood of 50, {name}", f"{2 * SECONDS:.0f} s: {tries}")
            figure(f"flood of 50, {name}, token users without", told(times[False]))
            figure(f"flood of 50, {name}, token users with", told(times[True]))
            for kind, took in signs.items():
                figure(
                    f"flood of 50, {name}, right sign-in of a {kind}",
                    f"{told(took)}, refused {refused[kind]}",
                )
            assert "200" not in counts, "a wrong password was taken"


HELLO: Final = {"magic": "STORE", "major": 1, "minor": [0, 0]}
TRIES: Final = 60
DEAR: Final = Cost(64 * 1024, 4)
"""What the owner of a namespace may bring at most."""
EACH_DEAR: Final = 10
"""Of the rounds, in each of which the dear one is tried."""


def medians(times: dict[str, list[float]]) -> str:
    found = {name: statistics.median(took) for name, took in times.items()}
    first = next(iter(found.values()))
    return ", ".join(
        f"{name} {value * 1e3:.2f} ms ({value / first - 1:+.1%})" for name, value in found.items()
    )


@pytest.mark.hard
async def test_wrong_passwords_and_unknown_users_are_refused_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    """Without the delays, which are the same for both and hide what there is to see."""
    for name in ("DELAY_FIRST_US", "DELAY_US", "DELAY_MOST_US"):
        monkeypatch.setattr(sign_in_throttle, name, 0)
    async with served(tmp_path / "store", {"password_cost": Cost()}) as node:
        define = f"DEFINE USER ana ROLE editor PASSWORD '{PASSWORD}'"
        dear = PasswordHasher(DEAR.passes, DEAR.memory_kib, DEAR.lanes).hash(PASSWORD)
        await node.here.value(f"{define}; DEFINE USER dear ROLE editor PASSHASH '{dear}'")
        raw = await node.raw()
        took: dict[str, dict[str, list[float]]] = {}

        async def over_http(user: str, password: str) -> None:
            body = json.dumps({"user": user, "password": password}).encode()
            answer = await raw.ask("POST", "/session", body, content_type="application/json")
            assert answer.status == 401, answer.body

        async def over_wire(user: str, password: str) -> None:
            async with node.stranger() as peer:
                peer.say(MessageKind.HELLO, 0, HELLO | {"user": user, "password": password})
                refused = await peer.hear()
            assert refused is not None and refused.kind is MessageKind.REFUSED, refused

        for nth in range(TRIES):
            # Each is first in every other round: what one leaves behind meets the other.
            users = ["ana", "nobody"][:: -1 if nth % 2 else 1]
            for user in [*users, *(["dear"] if nth % EACH_DEAR == 0 else [])]:
                for surface, refuse in (("POST /session", over_http), ("HELLO", over_wire)):
                    began, busy = time.perf_counter(), time.process_time()
                    await refuse(user, f"wrong password {nth}")
                    spent = time.perf_counter() - began, time.process_time() - busy
                    for what, one in zip(("time", "processor time"), spent, strict=True):
                        kept = took.setdefault(f"{surface}, {what}", {})
                        kept.setdefault(user, []).append(one)
    for name, found in took.items():
        figure(f"refused over {name} of {TRIES} tries each", medians(found))
