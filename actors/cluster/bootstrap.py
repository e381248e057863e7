"""Bootstrap of a replica: fetches a snapshot copy of the store (Raft §7) into a new directory.

No actor runs and no request is served meanwhile. Temporary failures are retried with growing
pauses: an unreachable node, a node that does not lead or gives too many copies, a broken link. The
parts received so far are kept. If their checksum is wrong they are discarded, and the copy starts
over.

Permanent failures are raised: an invalid token, another key, a full disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from enum import Enum
from hashlib import sha256
from itertools import product
from typing import Final
from uuid import UUID

import structlog

from actors.environment import Environment
from protocol import limits
from protocol.environment import File, Fs, Room
from protocol.errors import (
    CATALOGUE,
    BackupCorrupt,
    BackupCut,
    BadRequest,
    DiskFull,
    Refusal,
    WrongKey,
)
from protocol.links import (
    VERSION,
    Copy,
    CopyBegins,
    CopyEnds,
    Frames,
    Leads,
    Link,
    LinkClosed,
    Links,
    Message,
    NotKnown,
    Part,
    Redeem,
    Refused,
)
from protocol.values import instant
from storage.backups.replica_copy import CopiedStore as CopiedStore
from storage.backups.replica_copy import check_begins, check_key, make_copy
from storage.backups.state_builder import RestoreEnvironment, Tick
from storage.catalog import join_tokens
from storage.catalog.join_tokens import JoinToken
from storage.faults import CopyFailed, StoreNotSealed
from storage.files import peer_file
from storage.files.directory import COPIED, is_joining
from storage.files.disk_reserve import NO_ROOM
from storage.files.joining_file import CopySource, DownloadProgress, JoiningDirectory
from storage.files.peer_file import Identity
from storage.formats.sealing import Key, name_of

log = structlog.get_logger("cluster")

READ_BYTES: Final = limits.MIB
FIRST_PAUSE_SECONDS: Final = 1.0
PASSING: Final = frozenset(code for code, refusal in CATALOGUE.items() if refusal.retry) | {
    "LogPruned",
    "NotWritable",
    "UnknownOutcome",
}
"""Error codes of another node that may pass with time, or at another node. Redeeming a token again
settles an unknown outcome."""


class CopyRefused(Exception):
    """Another node has refused, for now.

    :ivar source: the leader, as that node has reported it
    """

    def __init__(self, why: str, leads: Leads | None = None) -> None:
        super().__init__(why)
        self.source = None if leads is None else CopySource(leads.node, (leads.peer,), leads.pins)


class DirectoryState(Enum):
    """State of a directory at the start of a join."""

    EMPTY = "empty"
    """Free, or with foreign files: the latter is refused when the directory is taken."""
    JOINING = "joining"
    """With a copy that was begun, or is to be repeated."""
    JOINED = "joined"
    """With a store whose node is in a cluster."""
    STORE = "store"
    """With a store whose node is in no cluster."""


def place_of(fs: Fs, path: str) -> DirectoryState:
    """Return the state of a directory, without touching it."""
    if is_joining(fs, path):
        return DirectoryState.JOINING
    if not fs.exists(f"{path}/STORE"):
        return DirectoryState.EMPTY
    return DirectoryState.JOINED if fs.exists(f"{path}/CLUSTER") else DirectoryState.STORE


async def join(
    environment: Environment,
    path: str,
    token: Callable[[], str | None],
    key: Key | None,
    tick: Tick,
    links_of: Callable[[str, Identity], Links],
    given: Identity | None = None,
) -> CopiedStore:
    """Make a directory a copy of the store of other nodes, from any stage of a join.

    :param token: reads the join token, or returns None. Called only while no token was redeemed: a
        resumed join needs none, and the token may be gone
    :param key: key that the store is sealed with; None: it is not sealed
    :param links_of: makes the links of a node, from its id and the certificate it shows
    :param given: certificate to show; None: the node makes its own
    :raises BadRequest: the token is malformed, or missing and needed. A new directory is left
        untouched then
    :raises NotJoined: the directory holds something. Nothing was changed
    :raises WrongKey, StoreNotSealed, StoreDamaged, StoreLocked, StoreOpenToOthers: the directory
        can't be taken
    :raises Refusal, StoreFault, EngineFailed, OSError: as `Joiner.join`
    """
    fs, clock, rng = environment.fs, environment.clock, environment.rng
    begun = is_joining(fs, path)
    # Before the directory is touched: a malformed token leaves it as it is.
    invitation = None if begun else _invitation(token)
    world = RestoreEnvironment(
        fs, clock, rng, environment.open_engine, environment.open_in_memory, tick, key=key
    )
    with closing(JoiningDirectory.lock(path, fs, clock, rng, key)) as joining:
        # Interrupted before the token was redeemed: it is still needed.
        if begun and joining.now.store is None:
            invitation = _invitation(token)
        node = str(joining.now.node)
        links = links_of(node, given or _identity(joining, environment))
        return await Joiner(joining, links, world).join(invitation)


def _invitation(token: Callable[[], str | None]) -> JoinToken | None:
    given = token()
    return None if given is None else join_tokens.read(given)


def _identity(joining: JoiningDirectory, environment: Environment) -> Identity:
    """Return the certificate of the node, made if it is new. It is durable before any node trusts
    it."""
    node, now = str(joining.now.node), instant(environment.clock.wall_us())
    return peer_file.current_identities(joining.directory, node, now, environment.rng).shown


class Joiner:
    """Makes a directory a copy.

    :param joining: the directory; the caller closes it
    :param links: makes links that show the certificate of this node
    :param world: receives the progress too
    """

    def __init__(self, joining: JoiningDirectory, links: Links, world: RestoreEnvironment) -> None:
        self._joining = joining
        self._links = links
        self._world = world
        self._path = f"{joining.directory.tmp_path}/{COPIED}"
        self.fetched_bytes = 0
        """Bytes of parts received, repeated ones included."""
        self._failures = 0
        """Consecutive attempts without progress …"""
        self._farthest = 0
        """… beyond this offset (bytes): repeated parts are no progress."""
        self._snapshot: bytes | None = None
        """Id of the snapshot that this offset is of; None: of the first."""
        self._was_damaged = False
        """True if a whole copy was discarded."""
        self._coming: _Coming | None = None
        """File of the parts, once a node was there to send some."""

    async def join(self, invited: JoinToken | None) -> CopiedStore:
        """Complete the copy, from any stage.

        :param invited: content of the token; None: it was redeemed already
        :raises BadRequest: it was not
        :raises SignInRefused: the token is invalid
        :raises WrongKey, StoreNotSealed: the store has another key. If found before the token is
            used up, the directory is empty again; else as for `StoreTooNew`
        :raises StoreTooNew: this version can't use the store. The directory holds no store
        :raises CopyFailed: too many attempts failed; the message has the last reason. The directory
            holds no store; the same command resumes
        :raises DiskFull, EngineFailed, OSError: likewise
        """
        if self._joining.now.store is None:
            if invited is None:
                raise BadRequest("the node has not joined yet: start it with a join token, --join")
            try:
                await self._until_done(lambda: self._redeem(invited))
            except (WrongKey, StoreNotSealed):
                self._joining.give_up()  # the token is still valid: try again with the right key
                raise
        while True:
            try:
                await self._until_done(self._fetch)
            finally:
                self._let_go()
            try:
                return self._make()
            except (BackupCut, BackupCorrupt, CopyFailed) as problem:
                # The verification covers the whole file, so no received part is trusted.
                self._begin_anew()
                await self._pause(str(problem))
            except OSError as problem:
                if problem.errno not in NO_ROOM:
                    raise
                raise _no_room() from problem

    def _make(self) -> CopiedStore:
        file = self._world.fs.open_read(self._path)
        try:
            return make_copy(self._world, self._joining, file)
        finally:
            file.close()

    # --- again ----------------------------------------------------------------------------------

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        """Retry work until it succeeds. :raises CopyFailed: too many attempts failed"""
        while True:
            try:
                await work()
            except (LinkClosed, CopyRefused, TimeoutError) as problem:
                why = str(problem) or "the other node did not answer for too long"
                await self._pause(why)
            except OSError as problem:
                if problem.errno not in NO_ROOM:
                    raise
                raise _no_room() from problem
            else:
                return

    async def _pause(self, why: str) -> None:
        self._failures += 1
        if self._failures >= limits.JOIN_TRIES:
            raise CopyFailed(f"the copy failed {self._failures} times, the last time with: {why}")
        longest = limits.JOIN_PAUSE_SECONDS_MAX
        seconds = min(FIRST_PAUSE_SECONDS * 2 ** (self._failures - 1), longest)
        log.warning("the copy failed and is tried again", reason=why, seconds=seconds)
        await asyncio.sleep(seconds)

    # --- the token ------------------------------------------------------------------------------

    async def _redeem(self, invited: JoinToken) -> None:
        """Redeem the token, so that the cluster trusts this node; record the id of the store."""
        problem: Exception = CopyRefused("no address is known")
        where = invited.where
        sources = [CopySource("", tuple(where.addresses), (where.fingerprint,))]
        for source in sources:  # grows by the leader that a refusal names
            # The request needs one expected certificate: each pin is tried at each address.
            for address, pin in product(source.addresses, source.pins):
                try:
                    store, node = await self._redeemed(address, pin, invited)
                except (LinkClosed, CopyRefused, TimeoutError) as failed:
                    problem = failed
                    _go_on_to(failed, sources)
                else:
                    # Durable before any part is fetched: from here on a restart needs no token.
                    self._joining.note(UUID(store), (replace(source, node=node),))
                    return
        raise problem

    async def _redeemed(self, address: str, pin: str, invited: JoinToken) -> tuple[str, str]:
        """Return the ids of the store and of the node that answered. Idempotent: a token that this
        node has used is answered again, in case the first answer was lost.

        :raises SignInRefused: the token is invalid
        :raises WrongKey, StoreNotSealed: the store has another key; the token is not used up
        """
        key, node = self._world.key, str(self._joining.now.node)
        asked = Redeem(VERSION, invited.secret, node, key=name_of(key))
        try:
            found = await self._links.redeem(address, pin, asked)
        except WrongKey as refusal:
            check_key(str(refusal.detail.get("key", "")), key)
            raise
        except Refusal as refusal:
            if refusal.code not in PASSING:
                raise
            raise CopyRefused(refusal.message, Leads.of(refusal.detail)) from refusal
        return found.store, found.node

    # --- the parts ------------------------------------------------------------------------------

    async def _fetch(self) -> None:
        """Receive all parts and sync them."""
        parts = self._joining.now.parts
        if parts is not None and parts.synced == parts.size:
            return  # an earlier process has them all
        problems: list[Exception] = []
        sources = list(self._joining.now.sources)
        # The list may grow meanwhile, by the leader that a refusal names.
        for source in sources:
            for address in source.addresses:
                try:
                    await self._fetch_from(address, source.pins)
                except (LinkClosed, CopyRefused, TimeoutError) as failed:
                    problems.append(failed)
                    if _go_on_to(failed, sources):
                        self._note_sources(sources)
                else:
                    return
        # One node may have outdated rows. If all refuse, no other attempt helps.
        if all(isinstance(one, NotKnown) for one in problems):
            raise CopyFailed(
                "this node is no longer known to the cluster: its row was dropped or its"
                " certificate revoked. To join again, use an empty directory and a new token"
            )
        raise problems[-1]

    async def _fetch_from(self, address: str, pins: Sequence[str]) -> None:
        link = await self._links.connect(address, pins)
        try:
            now = self._joining.now
            # The certificate proves the node, not its store.
            if link.peer.store != str(now.store):
                raise LinkClosed(f"{address} serves another store, {link.peer.store}")
            coming = await self._opened()
            # The sender resumes only a copy of this id, and otherwise sends from offset 0.
            resume = None if now.parts is None else now.parts.id
            link.send(Copy(resume, coming.size))
            await self._take_parts(link, coming)
        finally:
            link.close()

    async def _opened(self) -> _Coming:
        """Return the file of the parts, cut to its verified prefix. It is read once for all
        sources: if that takes longer than a link waits, the next source is asked at once."""
        if self._coming is None:
            parts = self._joining.now.parts
            coming = _Coming(self._world.fs.open(self._path, create=True))
            try:
                await coming.read(0 if parts is None else parts.synced)
            except BaseException:
                coming.file.close()
                raise
            self._coming = coming
        return self._coming

    def _let_go(self) -> None:
        if self._coming is not None:
            self._coming.file.close()
            self._coming = None

    async def _take_parts(self, link: Link, coming: _Coming) -> None:
        begins = await _next(link)
        if not isinstance(begins, CopyBegins):
            raise _misplaced(begins)
        parts = self._joining.now.parts
        # Parts of two snapshots must not be mixed.
        if parts is None or begins.id != parts.id or begins.size != parts.size:
            coming.cut()
            # The file's name is durable before JOINING refers to it.
            self._world.fs.sync_directory(self._joining.directory.tmp_path)
            parts = DownloadProgress(begins.id, begins.size, tuple(begins.history))
            self._note(parts)
        # Another snapshot counts once it is resumed: one that is new at each attempt is never
        # complete. Nor is one that is damaged each time, so no other offset counts after damage.
        elif begins.id != self._snapshot and not self._was_damaged:
            self._snapshot, self._farthest = begins.id, coming.size
        self._require_room(begins.size - coming.size)
        try:
            digest = await self._take_each(link, coming, parts)
        except (LinkClosed, CopyRefused, TimeoutError):
            self._sync(coming)  # the received parts need not be sent again
            raise
        # The digest covers the parts of all links and processes, not only of the last.
        if (coming.size, coming.digest) != (parts.size, digest):
            self._begin_anew()
            raise CopyRefused("the received copy differs from the one that was sent")
        self._sync(coming)

    async def _take_each(self, link: Link, coming: _Coming, parts: DownloadProgress) -> bytes:
        """Receive parts to the end. Return the digest that the sender gives for all of them."""
        synced = coming.size
        while True:
            message = await _next(link)
            if isinstance(message, CopyEnds):
                return message.digest
            if not isinstance(message, Part):
                raise _misplaced(message)
            self._take(message, coming, parts)
            if coming.size - synced >= limits.BACKUP_SYNC_BYTES:
                self._sync(coming)
                synced = coming.size
            self._world.tick("copying the store", coming.size, parts.size)

    def _take(self, part: Part, coming: _Coming, parts: DownloadProgress) -> None:
        """Append a part.

        :raises LinkClosed: it does not follow the parts received
        :raises WrongKey, StoreNotSealed, StoreTooNew: the copy can't be used here
        """
        if part.offset != coming.size or coming.size + len(part.data) > parts.size:
            raise LinkClosed(
                f"expected the part of the copy at byte {coming.size}, received that at"
                f" {part.offset}"
            )
        # Key and version stand in the first part: a useless copy ends before the rest is sent.
        if part.offset == 0:
            check_begins(part.data, self._world.key)
        coming.add(part.data)
        self.fetched_bytes += len(part.data)
        if coming.size > self._farthest:
            self._farthest, self._failures = coming.size, 0

    def _sync(self, coming: _Coming) -> None:
        """Make the received parts durable: another process resumes from here."""
        # Parts before note: JOINING must not count bytes that a crash can lose.
        coming.file.sync()
        parts = self._joining.now.parts
        assert parts is not None, "some copy is on its way"
        self._note(replace(parts, synced=coming.size))

    def _note(self, parts: DownloadProgress | None) -> None:
        store = self._joining.now.store
        assert store is not None, "parts are of some store"
        self._joining.note(store, parts=parts)

    def _note_sources(self, sources: Sequence[CopySource]) -> None:
        """Move the leader to the front of the recorded sources."""
        store = self._joining.now.store
        assert store is not None, "a source is of some store"
        self._joining.note(store, (sources[-1], *sources[:-1]), self._joining.now.parts)

    def _begin_anew(self) -> None:
        """Discard all received parts: a whole copy was damaged."""
        self._was_damaged = True
        self._note(None)
        if self._coming is not None:
            self._coming.cut()

    def _require_room(self, needed: int) -> None:
        """Check the free space. :raises DiskFull: the rest does not fit"""
        there = self._world.fs.room(self._joining.directory.tmp_path)
        if not there.holds(Room(needed, 1)):
            raise _no_room(needed)


class _Coming:
    """File of the received parts."""

    def __init__(self, file: File) -> None:
        self.file = file
        self._digest = sha256()
        self.size = 0

    async def read(self, known: int) -> None:
        """Read and hash the verified prefix; truncate the rest. Yields to the loop in between.

        :param known: length of the prefix (bytes)
        """
        # A shorter file counts as it is: the missing bytes are fetched again.
        known = min(known, self.file.size())
        while self.size < known:
            data = self.file.read(self.size, min(READ_BYTES, known - self.size))
            self._digest.update(data)
            self.size += len(data)
            await asyncio.sleep(0)
        self.file.truncate(self.size)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the whole file."""
        return self._digest.digest()

    def add(self, data: bytes) -> None:
        """Append bytes. :raises OSError: the disk failed; the file is unchanged"""
        try:
            self.file.append(data)
        except OSError:
            # A short write would leave bytes that the digest does not cover.
            self.file.truncate(self.size)
            raise
        self._digest.update(data)
        self.size += len(data)

    def cut(self) -> None:
        """Truncate the file to nothing."""
        self.file.truncate(0)
        self._digest = sha256()
        self.size = 0


def _go_on_to(refused: Exception, sources: list[CopySource]) -> bool:
    """Add the leader that a refusal names to the sources. False: it is known already.

    A node is asked once per attempt, however often others name it.
    """
    source = refused.source if isinstance(refused, CopyRefused) else None
    # Bounded, since each refusal may name another leader.
    if source is None or len(sources) > limits.REPLICAS:
        return False
    if any(source.node == one.node or source.addresses == one.addresses for one in sources):
        return False
    sources.append(source)
    return True


async def _next(link: Link) -> Message:
    """Return the next message, keep-alives skipped.

    :raises CopyRefused: a refusal that may pass
    :raises CopyFailed: a refusal that does not
    :raises LinkClosed: there is no more
    :raises TimeoutError: the sender is silent
    """
    while True:
        async with asyncio.timeout(limits.COPY_SILENT_SECONDS):
            message = await link.receive()
        if isinstance(message, Refused):
            why = f"{message.code}: {message.message}"
            if message.code not in PASSING:
                raise CopyFailed(why)
            raise CopyRefused(why, Leads.of(message.detail))
        if not isinstance(message, Frames):
            return message


def _misplaced(message: Message) -> LinkClosed:
    return LinkClosed(f"received {type(message).__name__} instead of a part of the copy")


def _no_room(needed: int = 0) -> DiskFull:
    return DiskFull("no room left on the disk for the copy", needed=needed)
