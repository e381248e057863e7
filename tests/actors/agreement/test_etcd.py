"""What is etcd's own: endpoints that are away, silent or wrong, users and certificates, and an etcd
that was made anew."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from actors import agreement
from actors.agreement import EtcdAgreement, EtcdCredentials
from protocol.agreement import AgreedState, InSyncReplicas, LeaderEntry, NotAnswered
from tests.actors.agreement.etcds import EtcdProcess, etcd_process, needs_etcd
from tests.certificates import self_signed

pytestmark = needs_etcd
SET = frozenset({"a", "b"})
ROOT = ("root", "planted-etcd")


@pytest.fixture(scope="module")
def etcd(shared_path: Path) -> Iterator[EtcdProcess]:
    with etcd_process(shared_path / "etcd") as found:
        yield found


@asynccontextmanager
async def silent(answers: bytes = b"") -> AsyncIterator[str]:
    """An endpoint that takes requests and answers none, or all the same."""
    taking: list[asyncio.Future[None]] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taking.append(over := asyncio.get_running_loop().create_future())
        with suppress(ConnectionResetError):
            await reader.read(1)
            writer.write(answers)
            await reader.read()
        writer.close()
        over.set_result(None)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await asyncio.gather(*taking)


@asynccontextmanager
async def forgetful(target: EtcdProcess) -> AsyncIterator[str]:
    """An endpoint that passes requests on to etcd, and forgets the answers."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inward, outward = await asyncio.open_connection("127.0.0.1", target.port)
        outward.write(await reader.read(65536))
        await inward.read(65536)
        outward.close()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def door(*endpoints: str, store: str, **more: object) -> AsyncIterator[EtcdAgreement]:
    found = EtcdAgreement(endpoints, store, **more)  # type: ignore[arg-type]
    yield found
    await found.close()


NOBODY = "http://127.0.0.1:1"


async def test_an_endpoint_where_nobody_listens_is_passed_over(etcd: EtcdProcess) -> None:
    async with door(NOBODY, etcd.endpoint, store="passed") as one:
        assert (await one.found(SET)).done
        assert (await one.read()).insync is not None


async def test_nobody_anywhere_is_told_and_nothing_was_done() -> None:
    async with door(NOBODY, "http://127.0.0.1:2", store="x") as one:
        with pytest.raises(NotAnswered) as told:
            await one.found(SET)
        assert not told.value.perhaps


async def test_of_a_silent_endpoint_only_what_does_no_harm_is_asked_again(
    etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "ANSWER_SECONDS", 1.0)  # etcd has to answer in it too
    async with silent() as endpoint, door(endpoint, etcd.endpoint, store="silent") as one:
        assert (await one.read()).insync is None
    async with silent() as endpoint, door(endpoint, etcd.endpoint, store="silent") as one:
        with pytest.raises(NotAnswered) as told:
            await one.found(SET)
        assert told.value.perhaps
        assert (await one.found(SET)).done, "the next request goes to the next endpoint"


async def test_what_one_endpoint_may_have_done_is_told_though_another_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agreement, "ANSWER_SECONDS", 0.3)
    async with silent() as endpoint, door(endpoint, NOBODY, store="perhaps") as one:
        with pytest.raises(NotAnswered) as told:
            await one.grant(5)
    assert told.value.perhaps


async def test_a_write_whose_answer_is_lost_may_have_been_done(etcd: EtcdProcess) -> None:
    async with forgetful(etcd) as endpoint, door(endpoint, store="forgotten") as one:
        with pytest.raises(NotAnswered) as told:
            await one.found(SET)
        assert told.value.perhaps
    async with door(etcd.endpoint, store="forgotten") as one:
        assert (await one.read()).insync is not None


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 503 Unavailable\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b'HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{"responses": [1, 2]}',
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + b" " * 2_000_000,
    ],
)
async def test_who_answers_otherwise_is_no_etcd(etcd: EtcdProcess, answer: bytes) -> None:
    async with silent(answer) as endpoint, door(endpoint, store="other") as one:
        with pytest.raises(NotAnswered) as told:
            await one.found(SET)
        assert told.value.perhaps
    async with silent(answer) as endpoint, door(endpoint, etcd.endpoint, store="other") as one:
        assert (await one.read()).insync is None


def _http(body: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def _agreed_in(insync: str = "", revision: str = '"7"', **others: str) -> bytes:
    """What etcd answers where that is written under a key of the store. :param revision: as JSON"""
    header = f'{{"cluster_id": "1", "revision": {revision}}}'
    ranges = []
    for value in (others.get("lead"), insync, others.get("lineage"), others.get("released")):
        kv = {"value": b64encode((value or "").encode()).decode()}
        found = {"kvs": [{**kv, "create_revision": "5", "mod_revision": "5"}]} if value else {}
        ranges.append({"response_range": found})
    return _http(f'{{"header": {header}, "responses": {json.dumps(ranges)}}}')


DEEP = 100_000


@pytest.mark.parametrize(
    "answer",
    [
        _http("[" * DEEP),
        _http('{"a":' * DEEP),
        _agreed_in(revision="1e999"),
        _agreed_in(revision="9" * 400),
        _agreed_in(revision='"' + "9" * 400 + '"'),
        _agreed_in(revision="-1"),
        _agreed_in(revision="1.5"),
        _agreed_in("[" * DEEP),
        _agreed_in('{"epoch": 1e999, "members": ["a"]}'),
        _agreed_in('{"epoch": 9223372036854775808, "members": ["a"]}'),
        _agreed_in('{"epoch": "1", "members": "abc"}'),
        _agreed_in('{"epoch": 1, "members": [1, [2]]}'),
        _agreed_in(lead="x" * 100_000),
        _agreed_in(lead="a\nb"),
        _agreed_in(lineage="9" * 5000),
        _agreed_in(released='{"epoch": 1, "sequence": 1e400}'),
        _agreed_in(released='{"a":' * DEEP),
    ],
)
async def test_a_value_that_no_node_can_hold_is_not_agreed(answer: bytes) -> None:
    async with silent(answer) as endpoint, door(endpoint, store="value") as one:
        with pytest.raises(NotAnswered, match="etcd"):
            await one.read()
        with pytest.raises(NotAnswered, match="etcd"):
            await one.changed(1, 0.1)


async def test_what_is_within_the_bounds_is_agreed() -> None:
    answer = _agreed_in('{"epoch": 1, "members": ["a"]}', str((1 << 63) - 1), lead="a", lineage="3")
    async with silent(answer) as endpoint, door(endpoint, store="value") as one:
        assert await one.read() == AgreedState(
            "1", (1 << 63) - 1, LeaderEntry("a", 5), InSyncReplicas(1, frozenset("a"), 5), 3
        )


async def test_no_password_goes_over_plain_http_to_another_machine() -> None:
    """Nor does a token; and what an answer says is not told on, but for etcd's own words."""
    planted = b'HTTP/1.1 403 No\r\nContent-Length: 32\r\n\r\n{"code": 7, "message": "planted"}'
    async with silent(planted) as endpoint:
        port = endpoint.rpartition(":")[2]
        elsewhere = f"http://0.0.0.0:{port}"  # leads here, and does not say so
        async with door(elsewhere, store="clear", access=EtcdCredentials(ROOT)) as one:
            with pytest.raises(NotAnswered, match="only over https") as told:
                await one.found(SET)
            assert not told.value.perhaps
            (fault,) = await one.faults()
            assert fault.startswith(
                f"{elsewhere}: the password of its user is sent only over https"
            )
        for access in (EtcdCredentials(ROOT, in_clear=True), EtcdCredentials()):
            async with door(elsewhere, store="clear", access=access) as one:
                with pytest.raises(NotAnswered, match="answered 403") as told:
                    await one.read()
                assert "planted" not in str(told.value)


async def test_stores_do_not_see_each_other(etcd: EtcdProcess) -> None:
    async with door(etcd.endpoint, store="1") as one, door(etcd.endpoint, store="10") as other:
        before = (await one.read()).revision
        assert (await other.found(SET)).done
        assert (await one.read()).insync is None
        waiting = asyncio.create_task(one.changed(before, 0.5))
        await other.change(0, 0, SET)
        found = await waiting
        assert found.insync is None


async def test_an_etcd_that_was_emptied_has_gone_back(tmp_path: Path) -> None:
    with etcd_process(tmp_path / "etcd") as etcd:
        async with door(etcd.endpoint, store="s") as one:
            assert (await one.found(SET)).done
            before = await one.read()
            etcd.stop()
            with pytest.raises(NotAnswered):
                await one.read()
            shutil.rmtree(etcd.directory / "data")
            etcd.start()
            after = await one.read()
    assert after.insync is None
    # Its id is made of its addresses: only the revision tells.
    assert after.cluster == before.cluster and after.revision < before.revision


async def test_what_was_agreed_outlives_etcds_process(tmp_path: Path) -> None:
    with etcd_process(tmp_path / "etcd") as etcd:
        async with door(etcd.endpoint, store="s") as one:
            written = (await one.found(SET)).agreed.insync
            etcd.stop()
            etcd.start()
            assert (await one.read()).insync == written


async def test_a_user_of_etcd_signs_in_again_when_its_token_has_ended(tmp_path: Path) -> None:
    with etcd_process(tmp_path / "etcd") as etcd:
        etcd.ask_for_users(*ROOT)
        async with door(etcd.endpoint, store="s") as one:
            with pytest.raises(NotAnswered, match="user"):
                await one.read()
        async with door(etcd.endpoint, store="s", access=EtcdCredentials(("root", "wrong"))) as one:
            with pytest.raises(NotAnswered, match="authentication failed"):
                await one.read()
        async with door(etcd.endpoint, store="s", access=EtcdCredentials(ROOT)) as one:
            assert (await one.found(SET)).done
            etcd.stop()
            etcd.start()  # it has forgotten its tokens
            found = await one.read()
            assert found.insync is not None
            async with asyncio.timeout(20):
                await one.changed(found.revision, 0.2)


async def test_a_token_of_an_etcd_that_was_set_back_is_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a one does not say that it is none: it waits until it has come as far as the token."""
    with etcd_process(tmp_path / "etcd") as etcd:
        etcd.ask_for_users(*ROOT)
        etcd.stop()
        shutil.copytree(etcd.directory / "data", tmp_path / "old")
        etcd.start()
        async with door(etcd.endpoint, store="s", access=EtcdCredentials(ROOT)) as other:
            for _ in range(20):
                await other.grant(60)
        async with door(etcd.endpoint, store="s", access=EtcdCredentials(ROOT)) as one:
            assert (await one.found(SET)).done
            etcd.stop()
            shutil.rmtree(etcd.directory / "data")
            (tmp_path / "old").rename(etcd.directory / "data")
            etcd.start()
            with monkeypatch.context() as patched:
                patched.setattr(agreement, "ANSWER_SECONDS", 0.5)
                with pytest.raises(NotAnswered, match="no answer in time"):
                    await one.read()
            assert (await one.read()).insync is None


async def test_a_user_that_etcd_does_not_ask_for_yet_is_no_fault(tmp_path: Path) -> None:
    with etcd_process(tmp_path / "etcd") as etcd:
        async with door(etcd.endpoint, store="s", access=EtcdCredentials(ROOT)) as one:
            assert (await one.found(SET)).done
            etcd.ask_for_users(*ROOT)
            assert (await one.read()).insync is not None


async def test_a_token_that_is_older_than_the_users_is_replaced(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, "jwt", key=rsa.generate_private_key(65537, 2048))
    public = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
    (tmp_path / "public").write_bytes(
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    told = f"jwt,pub-key={tmp_path}/public,priv-key={key},sign-method=RS256,ttl=2s"
    with etcd_process(tmp_path / "etcd", "--auth-token", told) as etcd:
        etcd.ask_for_users(*ROOT)
        access = EtcdCredentials(ROOT)
        async with door(etcd.endpoint, store="s", access=access) as one:
            assert (await one.found(SET)).done
            token = etcd.post("/v3/auth/authenticate", {"name": ROOT[0], "password": ROOT[1]})
            etcd.post("/v3/auth/user/add", {"name": "other", "password": "x"}, token["token"])
            assert (await one.read()).insync is not None  # "revision of auth store is old"
            ends = asyncio.get_running_loop().time() + 3
            while asyncio.get_running_loop().time() < ends:  # it ends within
                lease = await one.grant(60)
                await one.renew(lease)
            access.credential = ("root", "another")
            with pytest.raises(NotAnswered, match="authentication failed"):
                while True:
                    await one.read()


async def test_who_does_not_let_this_node_in_was_asked_for_nothing(
    etcd: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "ANSWER_SECONDS", 1.0)
    async with (
        silent() as endpoint,
        door(endpoint, etcd.endpoint, store="in", access=EtcdCredentials(ROOT)) as one,
    ):
        assert (await one.found(SET)).done, "the next endpoint is asked"


async def test_certificates_are_checked_on_both_sides(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, "etcd")
    words = (
        "--cert-file", str(certificate), "--key-file", str(key),
        "--trusted-ca-file", str(certificate), "--client-cert-auth",
    )  # fmt: skip
    with etcd_process(tmp_path / "etcd", *words, scheme="https") as etcd:
        context = ssl.create_default_context(cafile=str(certificate))
        async with door(etcd.endpoint, store="s", access=EtcdCredentials(tls=context)) as one:
            with pytest.raises(NotAnswered):
                await one.read()
        context.load_cert_chain(certificate, key)
        async with door(etcd.endpoint, store="s", access=EtcdCredentials(tls=context)) as one:
            assert (await one.found(SET)).done
        async with door(etcd.endpoint, store="s", access=EtcdCredentials()) as one:
            with pytest.raises(NotAnswered) as told:
                await one.read()
            assert not told.value.perhaps
