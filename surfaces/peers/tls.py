"""TLS between nodes, without input or output: bytes to bytes.

TLS 1.3 and nothing else. Each side shows a certificate and has its key. Nobody signs these: a
certificate is judged by its fingerprint, and by its dates, inside of the handshake, and whoever
shows another is told no more than that. No session is resumed: each connection is judged anew.

OpenSSL is reached through pyOpenSSL, since the standard library's `ssl` asks for no certificate
that no authority has signed. Keys come from memory, and are in no file for it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple
from weakref import WeakMethod

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from OpenSSL import SSL
from OpenSSL.crypto import X509

from protocol import limits

RECORD_BYTES: Final = 16 * limits.KIB
"""What one record of TLS holds at most."""

Judge = Callable[[str, datetime], str | None]
"""Told a fingerprint and when that certificate runs out. Why it is refused; None: it is not."""


class TlsFailed(Exception):
    """The handshake or the connection failed; the text says why, in words of ours or OpenSSL's."""


class NotAccepted(TlsFailed):
    """The other side has refused the certificate of this one."""


class Shown(NamedTuple):
    """The certificate of the other side."""

    fingerprint: str
    expires: datetime


def context(chain: list[x509.Certificate], key: object) -> SSL.Context:
    """What a node shows, whichever side it is on.

    :param chain: its own certificate first
    :param key: that certificate's private key
    """
    made = SSL.Context(SSL.TLS_METHOD)
    made.set_min_proto_version(SSL.TLS1_3_VERSION)
    made.set_max_proto_version(SSL.TLS1_3_VERSION)
    made.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_COMPRESSION)
    made.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    made.use_certificate(chain[0])
    for one in chain[1:]:
        made.add_extra_chain_cert(one)
    made.use_privatekey(key)  # type: ignore[arg-type]
    made.check_privatekey()
    made.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _verify)
    return made


def _verify(connection: SSL.Connection, *told: Any) -> bool:
    """Called by OpenSSL for each certificate that is shown: has the channel judge it.

    It is one for all connections, and none holds its channel: in a circle with it each would stay
    until the collector comes by, which does not know of the ten kilobytes that OpenSSL has of it.
    """
    judge = connection.get_app_data()()
    return judge is not None and bool(judge(*told))


class Channel:
    """One end of a connection.

    :param serves: whether the other side has connected
    :param judge: called with what the other side shows, before anything of it is believed
    :param now: the wall clock
    """

    def __init__(
        self, own: SSL.Context, serves: bool, judge: Judge, now: Callable[[], datetime]
    ) -> None:
        self._judge = judge
        self._now = now
        self._refused: str | None = None
        self.shown: Shown | None = None
        """Whose certificate was judged and not refused; of a peer who has its key once `stands`."""
        self.stands = False
        """Whether the handshake is done."""
        self.ended = False
        """Whether the other side has said that it sends no more."""
        self._connection = SSL.Connection(own, None)
        self._connection.set_app_data(WeakMethod(self._verify))
        if serves:
            self._connection.set_accept_state()
        else:
            self._connection.set_connect_state()

    def begin(self) -> None:
        """Say the first, where it is for this side to begin. :raises TlsFailed:"""
        self._shake_hands()

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the other side; what it said in them. `take` has what is to be sent.

        :raises TlsFailed: with what is to be sent of it in `take` all the same
        """
        self._connection.bio_write(data)
        if not self.stands:
            self._shake_hands()
            if not self.stands:
                return b""
        parts: list[bytes] = []
        try:
            while part := self._connection.recv(RECORD_BYTES):
                parts.append(part)
        except SSL.WantReadError:
            pass
        except SSL.ZeroReturnError:
            self.ended = True
        except SSL.Error as error:
            raise _failure(error) from error
        return b"".join(parts)

    def send(self, data: bytes | memoryview) -> None:
        """Say something; `take` has it sealed. :raises TlsFailed:"""
        try:
            self._connection.sendall(data)
        except SSL.Error as error:
            raise _failure(error) from error

    def end(self) -> None:
        """Say that nothing more comes."""
        try:
            self._connection.shutdown()
        except SSL.Error:
            return  # before the handshake is done there is nobody to say it to

    def take(self) -> bytes:
        """What is to be sent now."""
        parts: list[bytes] = []
        while True:
            try:
                parts.append(self._connection.bio_read(limits.MIB))
            except SSL.WantReadError:
                return b"".join(parts)

    def _shake_hands(self) -> None:
        try:
            self._connection.do_handshake()
        except SSL.WantReadError:
            return
        except SSL.Error as error:
            raise TlsFailed(self._refused) if self._refused else _failure(error) from error
        proved = self._connection.get_peer_certificate(as_cryptography=True)
        judged = None if self.shown is None else self.shown.fingerprint
        if proved is None or proved.fingerprint(hashes.SHA256()).hex() != judged:
            raise TlsFailed("the certificate is not the one that was judged")
        self.stands = True

    def _verify(self, shown: X509, _error: int, depth: int, _ok: int) -> bool:
        """Called for each certificate of the chain, and for each thing that OpenSSL finds wrong
        with it. Only the first is of interest, and what OpenSSL thinks of it is not."""
        if depth > 0:
            return True
        try:
            certificate = shown.to_cryptography()
            begins, expires = certificate.not_valid_before_utc, certificate.not_valid_after_utc
            fingerprint = certificate.fingerprint(hashes.SHA256()).hex()
        except ValueError:
            self._refused = "what was shown is no certificate"
            return False
        now = self._now()
        if now >= expires:
            self._refused = f"the certificate {fingerprint} has expired"
        elif now < begins:
            self._refused = f"the certificate {fingerprint} is not valid yet"
        else:
            self._refused = self._judge(fingerprint, expires)
        self.shown = None if self._refused else Shown(fingerprint, expires)
        return self._refused is None


def _failure(error: SSL.Error) -> TlsFailed:
    """What OpenSSL says of it, in its own words: they are constants."""
    if isinstance(error, SSL.SysCallError):
        return TlsFailed("the connection ended in the middle")
    words = [str(entry[-1]) for entry in (error.args[0] if error.args else []) if entry]
    if any("alert" in one and ("certificate" in one or "unknown ca" in one) for one in words):
        return NotAccepted("the other side does not know the certificate that was shown to it")
    return TlsFailed(f"TLS: {', '.join(words) or 'it failed'}")
