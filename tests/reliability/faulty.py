"""The command with something broken or made smaller in it: `python -m tests.reliability.faulty`.

`STORENODE_FAULTS` names what, in words divided by commas. Each fault is one that a rig beside this
file must catch; the others make a rig quicker.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from protocol import limits

FAULTS = "STORENODE_FAULTS"
MODULE = "tests.reliability.faulty"


def small() -> None:
    """Segments, checkpoints and prunes come often. Before anything else is imported."""
    limits.SEGMENT_FRAMES = 16  # type: ignore[misc]
    limits.LOG_FRAMES_KEPT = 32  # type: ignore[misc]
    limits.CHECKPOINT_SECONDS = 1  # type: ignore[misc]


def tiny() -> None:
    """Segments of a few frames, of which few are kept; checkpoints and marks only at the end, so
    that a run makes the same calls however busy the machine is."""
    limits.SEGMENT_FRAMES = 4  # type: ignore[misc]
    limits.LOG_FRAMES_KEPT = 8  # type: ignore[misc]
    limits.CHECKPOINT_SECONDS = 600  # type: ignore[misc]

    from actors.commits import idle_marks

    idle_marks.IDLE_SECONDS = 600  # type: ignore[misc]


def unpruned() -> None:
    """Keep the whole log, whatever the other limits."""
    limits.LOG_FRAMES_KEPT = 1_000_000  # type: ignore[misc]


def lists_soon() -> None:
    """Few vectors have lists."""
    from actors.indexes import vector_training

    vector_training.ONE_LIST = 200  # type: ignore[misc]


def folds_slowly() -> None:
    """Folds rest after each slice, and so take seconds."""
    from actors.indexes.segment_folds import SegmentFolds

    step = SegmentFolds.slice

    def rested(self: SegmentFolds) -> float | None:
        delay = step(self)
        return None if delay is None else max(delay, 0.5)

    SegmentFolds.slice = rested  # type: ignore[method-assign]


def never_compacts() -> None:
    """The state engine compacts nothing: a bad block is met by who reads it, and by nobody else."""
    from storage.engine.rocksdb import RocksEngine

    begin = RocksEngine.__init__

    def init(self: RocksEngine, path: str, may_compact: bool = True) -> None:
        begin(self, path, may_compact=False)

    RocksEngine.__init__ = init  # type: ignore[method-assign]


def small_transactions() -> None:
    """A commit holds little, and so do the dead letters of one."""
    limits.TRANSACTION_BYTES = 256 * limits.KIB  # type: ignore[misc]
    limits.LAPSE_BYTES = 32 * limits.KIB  # type: ignore[misc]
    limits.TAKE_BYTES = 16 * limits.KIB  # type: ignore[misc]


def answers_before_the_log() -> None:
    """Says that a batch is durable, and keeps it until the next one comes."""
    from actors.log import FramesSynced, LogActor
    from actors.runtime import tell
    from storage.formats.frames import Frame

    held: list[Frame] = []
    append = LogActor._append

    def answers(self: LogActor, frames: list[Frame], released: int) -> None:
        digests = [frame.digest() for frame in frames]
        last, generation = frames[-1], self._generation
        early = FramesSynced(last.sequence, 0, digests, last.epoch, generation)
        self.runtime.cross(tell, self._commits, early)
        if held:
            append(self, list(held), 0)
        held[:] = frames

    LogActor._append = answers  # type: ignore[method-assign]


def shows_keys_in_flight() -> None:
    """Answers a GET with what is not durable yet, which takes longer than it would."""
    import time

    from actors.log import LogActor
    from storage.formats.frames import Frame
    from storage.txn.latest import LatestState

    append = LogActor._append

    def late(self: LogActor, frames: list[Frame], released: int) -> None:
        time.sleep(0.005)
        append(self, frames, released)

    look = LatestState.get

    def blind(self: LatestState, key: bytes) -> bytes | None:
        found = look(self, key)
        self.saw = 0
        return found

    LogActor._append = late  # type: ignore[method-assign]
    LatestState.get = blind  # type: ignore[method-assign]


def syncs_again() -> None:
    """Takes the second sync's word for it, as if the first had not failed."""
    from storage.files.disk import DiskFile

    sync = DiskFile.sync

    def stubborn(self: DiskFile) -> None:
        try:
            sync(self)
        except OSError:
            sync(self)

    DiskFile.sync = stubborn  # type: ignore[method-assign]


def ignores_sync_errors() -> None:
    """A failed sync is as good as any."""
    from storage.files.disk import DiskFile

    sync = DiskFile.sync

    def careless(self: DiskFile) -> None:
        try:
            sync(self)
        except OSError:
            return

    DiskFile.sync = careless  # type: ignore[method-assign]


def writes_in_place() -> None:
    """Small files are written where they stand, not beside it and renamed."""
    from protocol.environment import Fs
    from storage.files import directory, metadata_file
    from storage.log import log

    def replace_file(fs: Fs, tmp: str, target: str, data: bytes) -> None:
        file = fs.open(target, create=True)
        try:
            file.truncate(0)
            file.append(data[: len(data) // 2])
            file.append(data[len(data) // 2 :])
            file.sync()
        finally:
            file.close()
        fs.sync_directory(target.rpartition("/")[0])

    for module in (metadata_file, log, directory):
        vars(module)["replace_file"] = replace_file


def flushes_without_room() -> None:
    """Nobody looks whether what the state has to flush fits on the disk."""
    from actors.checkpoints import Flush, FlushActor
    from actors.log import LogActor

    def flush(self: FlushActor, _message: Flush) -> int:
        self._engine.flush()
        return self._engine.flushed_sequence()

    setattr(LogActor, "_spare", lambda self, batch_bytes: None)  # noqa: B010
    FlushActor.handlers = {**FlushActor.handlers, Flush: flush}


def reserve_for_nobody() -> None:
    """Who takes something away is refused on a full disk, as everybody."""
    from actors import log
    from actors.commits import committer

    for module in (log, committer):
        vars(module)["only_removes"] = lambda _body: False


def keeps_no_files() -> None:
    """The reserve holds bytes and no inodes."""
    limits.LOG_RESERVE_FILES = 1  # type: ignore[misc]


def keeps_no_room_to_cut() -> None:
    """What a refused write left is cut off without the reserve, as where that takes no room."""
    from protocol.environment import File
    from storage.log.tail_writer import TailWriter

    def shorten(self: TailWriter, file: File, reserved: bool) -> None:
        try:
            file.truncate(self.state.segments[-1].size)
            file.sync()
        except OSError as error:
            self.fail(error)

    TailWriter._shorten = shorten  # type: ignore[method-assign]


def stays_refused() -> None:
    """A log that was full once never takes anything again."""
    from protocol.errors import DiskFull
    from storage.log.log import Log

    append = Log.append
    full = False

    def offended(self: Log, *frames: Any, **more: Any) -> list[bytes]:
        nonlocal full
        if full:
            raise DiskFull("still")
        try:
            return append(self, *frames, **more)
        except DiskFull:
            full = True
            raise

    Log.append = offended  # type: ignore[method-assign]


def drops_short_writes() -> None:
    """Takes a short write for a whole one. Comes with `short_writes`."""
    from storage.files import disk

    def append(self: disk.DiskFile, data: bytes, ahead: int = 0) -> None:
        vars(disk)["os"].write(self._descriptor, data)

    disk.DiskFile.append = append  # type: ignore[method-assign]


def short_writes() -> None:
    """The system writes only a part of what it is given, now and then."""
    from storage.files import disk

    class Short:
        """`os`, but for `write`."""

        calls = 0

        def __getattr__(self, name: str) -> object:
            return getattr(os, name)

        def write(self, descriptor: int, data: bytes) -> int:
            self.calls += 1
            if self.calls % 3 == 0 and len(data) > 1:
                data = data[: max(1, len(data) * (self.calls % 7) // 7)]
            return os.write(descriptor, data)

    vars(disk)["os"] = Short()


def lingers() -> None:
    """Its end, after all is closed, takes as long as there is a file beside the store."""
    import atexit
    import time

    def wait() -> None:
        print('{"event": "lingering"}', file=sys.stderr, flush=True)
        while os.path.exists(f"{sys.argv[1]}.lingers"):
            time.sleep(0.01)

    atexit.register(wait)


def overfills() -> None:
    """A group hands out more than it says."""
    from dataclasses import replace

    from storage.topics.deliveries.index import DeliveryIndex
    from storage.topics.groups import Group
    from storage.txn.transaction import Transaction

    make = DeliveryIndex.__init__

    def generous(
        self: DeliveryIndex, tx: Transaction, group: Group, *more: Any, **named: Any
    ) -> None:
        make(self, tx, replace(group, in_flight=group.in_flight * 2), *more, **named)

    DeliveryIndex.__init__ = generous  # type: ignore[method-assign]


def promises_too_long() -> None:
    """A worker is told a deadline that is a second later than the one that holds."""
    from storage.topics.deliveries import fetch

    instant = vars(fetch)["instant"]

    def later(time_us: int) -> object:
        return instant(time_us + 1_000_000)

    vars(fetch)["instant"] = later


def forgets_attempts() -> None:
    """Every hand-out is shown as the first."""
    from storage.topics.deliveries.fetch import FetchedMessages

    add = FetchedMessages.add

    def forgetful(self: FetchedMessages, position: int, row: bytes, attempt: int) -> None:
        add(self, position, row, attempt)
        self.found[-1]["attempt"] = 1

    FetchedMessages.add = forgetful  # type: ignore[method-assign]


def gives_every_descriptor_away() -> None:
    """Connections may take the last open file."""
    from surfaces.command import descriptors

    descriptors.for_connections = lambda limit: limit


def keeps_requests() -> None:
    """Keeps 50 KB of every script for ever."""
    from actors.scripts.transactions import ScriptRun

    kept: list[bytes] = []
    run = ScriptRun.run

    def keep(self: ScriptRun) -> None:
        kept.append(b"x" * 50_000)
        run(self)

    ScriptRun.run = keep  # type: ignore[method-assign]


def stalls() -> None:
    """No sync of a file returns as long as there is a file beside the store."""
    import time

    from storage.files.disk import DiskFile

    sync = DiskFile.sync

    def slow(self: DiskFile) -> None:
        while os.path.exists(f"{sys.argv[1]}.stalls"):
            time.sleep(0.01)
        sync(self)

    DiskFile.sync = slow  # type: ignore[method-assign]


def dies_in_a_backup() -> None:
    """SIGKILL before the n-th change in the backup folder; n stands in a file beside the store.
    What was changed is noted in another one, a line each."""
    import signal

    from storage.files.disk import DiskFile, DiskFolder

    created: set[DiskFile] = set()
    done: list[str] = []

    def counted(kind: type, name: str, applies: Callable[[Any], bool]) -> None:
        plain = getattr(kind, name)

        def changing(self: Any, *words: Any, **more: Any) -> Any:
            if applies(self):
                _step(name)
            found = plain(self, *words, **more)
            if name == "create":
                created.add(found)
            return found

        setattr(kind, name, changing)

    def _step(name: str) -> None:
        done.append(name)
        store = sys.argv[1]
        with open(f"{store}.changes", "w") as file:
            file.write("\n".join(done))
        if os.path.exists(f"{store}.dies"):
            with open(f"{store}.dies") as file:
                if int(file.read()) == len(done):
                    os.kill(os.getpid(), signal.SIGKILL)

    for name in ("make_folder", "create", "rename", "unlink", "sync"):
        counted(DiskFolder, name, lambda _folder: True)
    for name in ("append", "sync", "forget_cache"):
        counted(DiskFile, name, created.__contains__)


def dies_in_the_log() -> None:
    """SIGKILL at the n-th append to the log or sync of it, counted from when a file `.dies` stands
    beside the store, which holds n: before it, or with `torn` behind n in the midst of it. How many
    there were is noted in `.steps`."""
    import signal

    from storage.files.disk import DiskFile

    paths: dict[int, str] = {}
    done = 0

    def path_of(descriptor: int) -> str:
        if descriptor not in paths:
            paths[descriptor] = os.readlink(f"/proc/self/fd/{descriptor}")
        return paths[descriptor]

    def counted(name: str) -> None:
        plain = getattr(DiskFile, name)

        def changing(self: DiskFile, *words: Any, **more: Any) -> Any:
            nonlocal done
            store = sys.argv[1]
            if path_of(self._descriptor).endswith(".storelog") and os.path.exists(f"{store}.dies"):
                done += 1
                with open(f"{store}.steps", "w") as file:
                    file.write(str(done))
                with open(f"{store}.dies") as file:
                    at, _, how = file.read().partition(" ")
                if int(at) == done:
                    if how and name == "append":
                        os.write(self._descriptor, words[0][: len(words[0]) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
            return plain(self, *words, **more)

        setattr(DiskFile, name, changing)

    counted("append")
    counted("sync")


def small_rotations() -> None:
    """Few values are sealed again in a commit."""
    from actors.vaults import rotation

    rotation.AT_ONCE = 4  # type: ignore[misc]


def wraps_later() -> None:
    """A new root key of the store is put in a commit behind that of the keys under it."""
    from actors.commits.committer import NODE
    from actors.vaults.actor import VaultsActor

    put = VaultsActor._put_wrap

    def late(self: VaultsActor, tx: Any, act: Any, made: Any) -> None:
        def again() -> None:
            with self._committer.begin_transaction() as behind:
                put(self, behind, act, made)
                self._committer.commit(behind, NODE)

        if act.action == "rekey":
            self.after(0.05, again)
        else:
            put(self, tx, act, made)

    VaultsActor._put_wrap = late  # type: ignore[method-assign]


def names_before_it_writes() -> None:
    """A backup has its name from its first byte on. Comes with `dies_in_a_backup`."""
    from actors.backups import folder

    begin = folder.Draft.create_file

    def early(self: folder.Draft, needed: Any) -> None:
        begin(self, needed)
        self._folder.rename(self._partial, self._own)
        self._partial = self._own

    folder.Draft.create_file = early  # type: ignore[method-assign]
    folder.Draft.publish = lambda self: None  # type: ignore[method-assign]


def log_thread_ends() -> None:
    """The log's thread ends at the first batch, as one does that calls `sys.exit`."""
    from actors.log import LogActor

    def ends(self: LogActor, batch: Any) -> None:
        raise SystemExit("the thread has ended")

    LogActor.on_batch = ends  # type: ignore[method-assign]


def sign_ins_see_what_was_first() -> None:
    """A sign-in takes its user as it was before the hash, and the session for one of today."""
    from dataclasses import replace

    from actors.sign_ins import SessionsActor

    async def checked(self: SessionsActor, one: Any, password: str) -> Any:
        before = await self._settled(one.user)
        passhash = before.user.passhash if before.user is not None else None
        verdict = await self._passwords.verify(password, passhash)
        if before.user is None or not verdict.matches:
            return None
        return replace(before, users_version=self._committer.ledger.state.users_version)

    SessionsActor._checked = checked  # type: ignore[method-assign]


def holds_without_bound() -> None:
    """Whatever its peers make it hold, there is room for it."""
    from protocol import conversation
    from surfaces.memory_quota import MemoryQuota

    conversation.HELLO_BYTES = limits.MIB  # type: ignore[misc]
    limits.TLS_READ_BYTES = 256 * limits.KIB  # type: ignore[misc]

    for name in (
        "CONNECTION_REQUESTS_BYTES",
        "CONNECTION_ANSWERS_BYTES",
        "CONNECTION_BUFFER_BYTES",
    ):
        setattr(limits, name, limits.INT_MAX)

    def take(self: MemoryQuota, user: str, size: int) -> bool:
        self._of[user] = self._of.get(user, 0) + size
        self.total += size
        return True

    MemoryQuota.take = take  # type: ignore[method-assign]
    from surfaces.http.connection import HttpConnection

    setattr(HttpConnection, "full", property(lambda self: False))  # noqa: B010


def small_surfaces() -> None:
    """What all peers of a surface may make it hold is little, so that a rig fills it quickly."""
    limits.REQUESTS_BYTES = 32 * limits.MIB  # type: ignore[misc]
    limits.ANSWERS_BYTES = 32 * limits.MIB  # type: ignore[misc]


FOUND: dict[str, Callable[[], None]] = {
    "small": small, "tiny": tiny, "unpruned": unpruned, "never-compacts": never_compacts,
    "folds-slowly": folds_slowly,
    "lists-soon": lists_soon,
    "small-transactions": small_transactions,
    "answers-before-the-log": answers_before_the_log, "shows-keys-in-flight": shows_keys_in_flight,
    "syncs-again": syncs_again, "ignores-sync-errors": ignores_sync_errors,
    "flushes-without-room": flushes_without_room, "keeps-no-files": keeps_no_files,
    "keeps-no-room-to-cut": keeps_no_room_to_cut,
    "reserve-for-nobody": reserve_for_nobody, "stays-refused": stays_refused,
    "writes-in-place": writes_in_place, "short-writes": short_writes,
    "drops-short-writes": drops_short_writes, "lingers": lingers,
    "overfills": overfills, "promises-too-long": promises_too_long,
    "forgets-attempts": forgets_attempts,
    "gives-every-descriptor-away": gives_every_descriptor_away, "keeps-requests": keeps_requests,
    "sign-ins-see-what-was-first": sign_ins_see_what_was_first,
    "stalls": stalls,
    "dies-in-a-backup": dies_in_a_backup, "names-before-it-writes": names_before_it_writes,
    "dies-in-the-log": dies_in_the_log, "log-thread-ends": log_thread_ends,
    "small-rotations": small_rotations, "wraps-later": wraps_later,
    "holds-without-bound": holds_without_bound,
    "small-surfaces": small_surfaces,
}  # fmt: skip


def plant() -> None:
    """Break what is named."""
    for name in filter(None, os.environ.get(FAULTS, "").split(",")):
        FOUND[name]()


def main(words: Sequence[str]) -> int:
    """Break what is named, then be the command."""
    plant()
    from surfaces.command.main import main as command

    return command(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
