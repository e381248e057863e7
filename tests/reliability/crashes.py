"""Crash rig: a workload on the log, with the power cut at every operation on the disk.

Simulated: `Workload` does everything that a log does, at random: it opens, appends, syncs, cuts its
tail, prunes, runs into a full disk, stops and opens again; as a node alone, or as a follower. It
keeps a `Story`: the frames that may be there, and the newest acknowledged one. Before every change
of the disk, `Enumeration` draws states that a power cut there could leave (`disk.py` of the
simulation has the rules), opens the store on each, and compares the log with the story. The
recoveries of some of those states are cut at each of their own operations, and those again.

Checked in each state: every acknowledged frame is there, and is the one that was written; no other
frame is; sequences are dense; epochs, log time and the file NODE do not go back; the log opens.

Not simulated: the state engine, transactions and surfaces (`world.py` of the simulation has the
whole node); damage of synced bytes (`test_damage.py`); a kernel and real file systems
(`test_power_cut.py`, `test_syscall_kill.py`). Of the states at a point only a sample is drawn, and
sectors are 64 bytes, so that a frame spans several.

To reproduce: a violation raises `Broken` in `enumerate_crashes(seed, states)`. The same arguments
give the same states in the same order, and a debugger at that exception has the disk, the log and
the story. A workload depends on its seed alone, so a smaller number of states is a prefix.

Proof: logs that acknowledge before the sync, trust the page cache, rename before the sync, and more
are planted beside the tests, and each has to be found:
`tests/reliability/test_crash_enumeration.py::test_planted_log_is_caught`,
`tests/reliability/test_crash_enumeration.py::test_planted_log_that_few_states_show_is_caught`,
`tests/reliability/test_crash_enumeration.py::test_planted_replace_is_caught`.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from uuid import UUID

from protocol.errors import DiskFull, UnknownOutcome
from storage.faults import LogFailed
from storage.files.directory import StoreDirectory
from storage.files.node_file import NodeFileContents, load_node, save_node
from storage.formats.frames import Frame
from storage.formats.positions import EpochEnd, whole_history
from storage.formats.sealing import Key
from storage.log.log import Log
from storage.log.state import LogSizes
from tests.simulation.disk import NO_LIMIT, Fault, Image, SimulatedDisk
from tests.simulation.environment import START_US, ManualClock, SeededRng

PATH = "/data/store"
SECTOR = 64
SEGMENT_BYTES = 700
SEGMENT_FRAMES = 6
RESERVE_BYTES = 256
RESERVE_FILES = 2
AHEAD_BYTES = 400
COPYING = 30
"""Bytes that a disk which copies must have left to change something."""
MACHINE: Image = {"": None, "/data": None}


class Killed(BaseException):
    """The process ends here, in the middle of whatever it does."""


class Broken(AssertionError):
    """A promise that a crash state does not keep."""


@dataclass(frozen=True)
class Story:
    """What a store must and may hold."""

    store_id: UUID | None = None
    """Known once an open has returned."""
    frames: dict[int, Frame] = field(default_factory=dict)
    """By sequence: the only frames that may be there."""
    left: dict[int, Frame] = field(default_factory=dict)
    """Of a write whose outcome is unknown: they may stand where others do, until one that comes
    after them was acknowledged."""
    acknowledged: int = 0
    begins: int = 1
    """A prune may have removed what is below. It must leave all the rest."""
    nodes: tuple[NodeFileContents, ...] = ()
    """What NODE may say; empty: there need not be one."""
    log_time: int = 0


def open_store(
    disk: SimulatedDisk, rng: SeededRng, log_class: type[Log] = Log, key: Key | None = None
) -> tuple[StoreDirectory, Log]:
    directory = StoreDirectory.open(PATH, disk, ManualClock(), rng, create=True, key=key)
    try:
        sizes = LogSizes(SEGMENT_BYTES, SEGMENT_FRAMES, RESERVE_BYTES, AHEAD_BYTES, RESERVE_FILES)
        log = log_class.open(directory, sizes)
    except BaseException:
        directory.close()
        raise
    return directory, log


class Enumeration:
    """Takes crash points, opens what they may leave, and checks it.

    :param per_point: crash states looked at for each crash point
    :param most: crash states that are looked at; nothing is cut any more behind them
    :param nested: one in so many recoveries is itself cut at each of its operations
    :param key: what the store is sealed with; None: it is not
    """

    def __init__(
        self,
        seed: int,
        most: int,
        log_class: type[Log] = Log,
        per_point: int = 24,
        nested: int = 40,
        key: Key | None = None,
    ) -> None:
        self._rng = random.Random(seed)
        self._most = most
        self._log_class = log_class
        self._key = key
        self._per_point = per_point
        self._nested = nested
        self._seen: set[bytes] = set()
        self.states = 0
        """Different crash states checked."""
        self.recoveries_cut = 0
        """Of these, states left by a cut during recovery."""

    def cut(self, disk: SimulatedDisk, story: Story, depth: int = 0) -> None:
        """Check every state that a cut at this moment may leave."""
        if self.states >= self._most:
            return
        per_point = self._per_point if depth == 0 else 6
        for image in disk.crash_point().images(per_point, self._rng):
            if self._is_new(image, story):
                self.states += 1
                self.recoveries_cut += depth > 0
                self._check(image, story, depth)

    def _is_new(self, image: Image, story: Story) -> bool:
        digest = blake2b(digest_size=16)
        digest.update(f"{story.acknowledged} {story.begins} {len(story.nodes)}".encode())
        for path, content in image.items():
            digest.update(path.encode())
            digest.update(b"/" if content is None else b"%d:" % len(content) + content)
        key = digest.digest()
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _check(self, image: Image, story: Story, depth: int) -> None:
        disk = SimulatedDisk(image, sector=SECTOR)
        rng = SeededRng(self._rng.getrandbits(32))
        if depth < 2 and self._rng.randrange(self._nested) == 0:
            disk.watch = lambda _kind, _path: self.cut(disk, story, depth + 1)
        directory, log = open_store(disk, rng, self._log_class, self._key)
        disk.watch = None
        check_promises(directory, log, story)
        follow_up = self._rng.randrange(8)
        if follow_up == 0:
            story = self._carry_on(disk, log, directory, story)
            directory, log = open_store(disk, rng, self._log_class, self._key)
            check_promises(directory, log, story)
        log.close(clean=False)
        directory.close()

    def _carry_on(
        self, disk: SimulatedDisk, log: Log, directory: StoreDirectory, story: Story
    ) -> Story:
        """Go on writing after a recovery, and stop in one of three ways."""
        kept = found(log, story)
        frame = Frame(
            log.state.last + 1, log.state.epoch, log.state.last_time, 0, b"after the crash"
        )
        log.append([frame])
        kept[frame.sequence] = frame
        way = self._rng.randrange(3)
        if way == 0:
            log.close()
            directory.close()
        elif way == 1:
            disk.kill()
        else:
            disk.cut_power(self._rng)
        return replace(
            story,
            store_id=directory.store_id,
            frames=kept,
            left={},
            acknowledged=frame.sequence,
            begins=log.state.first,
        )


def check_promises(directory: StoreDirectory, log: Log, story: Story) -> None:
    """Compare an opened store with the story.

    :raises Broken: something acknowledged is lost, or something is there that never was
    """
    if story.store_id is not None and directory.store_id != story.store_id:
        raise Broken("another store is there")
    if log.state.last < story.acknowledged:
        raise Broken(f"acknowledged {story.acknowledged}, held {log.state.last}")
    if log.state.first > story.begins:
        raise Broken(f"the log begins at {log.state.first}, pruned was below {story.begins}")
    expected, last = log.state.first, None
    ended: list[EpochEnd] = []
    for frame in log.reader.read(log.state.first):
        if last is not None and frame.epoch > last.epoch:
            ended.append(EpochEnd(last.epoch, last.sequence, last.digest()))
        last = frame
        if frame.sequence != expected:
            raise Broken(f"{frame.sequence} follows {expected - 1}")
        mays = [of[expected] for of in (story.frames, story.left) if expected in of]
        if not mays and expected >= story.begins:
            raise Broken(f"nobody wrote {expected}")
        if mays and frame not in mays:
            raise Broken(f"{expected} is not what was written")
        expected += 1
    if expected != log.state.last + 1:
        raise Broken(f"the log reads up to {expected - 1} and says {log.state.last}")
    told = [
        one
        for one in whole_history(log.state.epoch_ends, log.state.present)[:-1]
        if one.last >= log.state.first
    ]
    if told != ended:
        raise Broken(f"the log tells reigns {told}, and holds {ended}")
    if log.state.last_time < story.log_time and log.state.last >= story.acknowledged:
        raise Broken("log time went back")
    if story.nodes and load_node(directory) not in story.nodes:
        raise Broken("NODE is neither what it was nor what it was to become")


def found(log: Log, story: Story) -> dict[int, Frame]:
    frames = {n: f for n, f in story.frames.items() if n <= log.state.last}
    for frame in log.reader.read(max(log.state.first, min(story.left))) if story.left else ():
        frames[frame.sequence] = frame
    return frames


class Workload:
    """Random work on one store; each action is a method `_do_…`.

    :param follows: the frames are leaders', of whom another comes now and then and has what was not
        released cut
    """

    def __init__(
        self,
        seed: int,
        log_class: type[Log] = Log,
        enumeration: Enumeration | None = None,
        key: Key | None = None,
        follows: bool = False,
    ) -> None:
        self._random = random.Random(seed)
        self._rng = SeededRng(seed)
        self._log_class = log_class
        self._key = key
        self._enumeration = enumeration
        self.disk = SimulatedDisk(dict(MACHINE), sector=SECTOR)
        self.disk.watch = self._before_each_operation
        self.story = Story()
        self._time = START_US
        self._follows = follows
        self._epoch = 1
        self._operations_to_live: int | None = None
        self._open()

    def run(self, actions: int) -> None:
        choices = [
            (self._do_append, 12), (self._do_mark, 2), (self._do_prune, 2), (self._do_give_way, 1),
            (self._do_close, 2), (self._do_kill, 1), (self._do_power_cut, 1), (self._do_node, 1),
            (self._do_full_disk, 1), (self._do_quota, 1), (self._do_failed_sync, 1),
            (self._do_failed_write, 1), (self._do_kill_inside, 4),
        ]  # fmt: skip
        if self._follows:
            choices += [(self._do_cut, 4), (self._do_kill_inside_a_cut, 3), (self._do_reign, 2)]
        acts = [act for act, _ in choices]
        weights = [weight for _, weight in choices]
        for _ in range(actions):
            self._random.choices(acts, weights)[0]()
        self._do_close()
        self._log.close(released=self._released())
        self._directory.close()
        self.disk.watch = None

    def _before_each_operation(self, _kind: str, _path: str) -> None:
        if self._enumeration is not None:
            self._enumeration.cut(self.disk, self.story)
        if self._operations_to_live is not None:
            self._operations_to_live -= 1
            if self._operations_to_live < 0:
                raise Killed

    def _open(self) -> None:
        self._directory, self._log = open_store(self.disk, self._rng, self._log_class, self._key)
        log = self._log
        check_promises(self._directory, log, self.story)
        # What an open has shown stays: it is as good as acknowledged.
        self.story = replace(
            self.story,
            store_id=self._directory.store_id,
            frames=found(log, self.story),
            left={},
            acknowledged=log.state.last,
            begins=log.state.first,
        )

    def _frames(self) -> Iterator[Frame]:
        """Frames to append: one, or a group."""
        for at in range(self._random.choice([1, 1, 1, 2, 3, 5])):
            self._time += self._random.randrange(3)
            size = self._random.choice([0, 5, 40, 90, 200])
            body = self._random.randbytes(size)
            time = max(self._time, self._log.state.last_time)
            yield Frame(self._log.state.last + 1 + at, self._epoch, time, 0x100, body)

    def _attempt(self) -> bool:
        """Append, and keep the story. False: refused, because the disk is full."""
        before = self.story
        frames = list(self._frames())
        written = {frame.sequence: frame for frame in frames}
        self.story = replace(before, frames={**before.frames, **written})
        try:
            reserved = self._random.random() < 0.2
            self._log.append(frames, released=self._released(), reserved=reserved)
        except DiskFull:
            self.story = before  # refused: they must never be seen
            return False
        except UnknownOutcome:
            self.story = replace(before, left=written)
            return False
        last, time = self._log.state.last, self._log.state.last_time
        self.story = replace(self.story, acknowledged=last, log_time=time, left={})
        return True

    def _released(self) -> int | None:
        """What is said to be released: all, or of a leader some more now and then."""
        log = self._log
        if not self._follows:
            return None
        return self._random.choice(
            [log.state.released, self._random.randint(log.state.released, log.state.last)]
        )

    def _do_append(self) -> None:
        self._attempt()

    def _do_mark(self) -> None:
        self._log.mark(released=self._released())

    def _do_reign(self) -> None:
        self._epoch += self._random.randrange(1, 3)

    def _do_cut(self) -> None:
        log, before = self._log, self.story
        lowest = max(log.state.released, log.state.first - 1)
        after = self._random.choice([lowest, self._random.randint(lowest, log.state.last)])
        self.story = replace(before, acknowledged=min(after, before.acknowledged), log_time=0)
        log.cut(after)
        frames = {n: f for n, f in before.frames.items() if n <= after}
        self.story = replace(self.story, frames=frames)
        assert log.state.last == after
        check_promises(self._directory, log, self.story)

    def _do_kill_inside_a_cut(self) -> None:
        for _ in range(8):
            self._attempt()
        self._operations_to_live = self._random.randrange(40)
        with suppress(Killed):
            self._do_cut()
        self._operations_to_live = None
        self.disk.kill()
        self._open()

    def _do_prune(self) -> None:
        below = self._random.randrange(1, self._log.state.last + 2)
        self.story = replace(self.story, begins=max(self.story.begins, below))
        self._log.prune(below)
        self.story = replace(self.story, begins=self._log.state.first)

    def _do_give_way(self) -> None:
        flushed = self._random.randrange(self._log.state.last + 1)
        if self._random.random() < 0.5:
            flushed = self._log.state.last
        self.story = replace(self.story, begins=max(self.story.begins, flushed + 1))
        self._log.give_way(flushed)
        self.story = replace(self.story, begins=self._log.state.first)

    def _do_close(self) -> None:
        self._log.close(released=self._released())
        self._directory.close()
        self._open()
        assert self._log.recovery.clean, "a clean close was not clean"

    def _do_kill(self) -> None:
        self.disk.kill()
        self._open()

    def _do_kill_inside(self) -> None:
        """Killed in the middle of something, and perhaps again in the recovery after it."""
        act = self._random.choice(
            [self._do_append, self._do_append, self._do_close, self._do_prune, self._do_node]
        )
        for step in [act] + [self._open] * self._random.randrange(1, 4):
            self._operations_to_live = self._random.randrange(12)
            with suppress(Killed):
                step()
            self._operations_to_live = None
            self.disk.kill()
        self._open()

    def _do_power_cut(self) -> None:
        self.disk.cut_power(self._random)
        self._open()

    def _do_node(self) -> None:
        before = self.story.nodes
        if not before:
            # Made at the first look, and then kept: until it is durable there may be none.
            self.story = replace(self.story, nodes=(load_node(self._directory),))
            return
        after = replace(before[-1], endpoints=(f"host:{self._random.randrange(65536)}",))
        self.story = replace(self.story, nodes=(*before, after))
        save_node(self._directory, after)
        self.story = replace(self.story, nodes=(after,))

    def _do_full_disk(self) -> None:
        """The disk fills up, refuses a while, and gets room again."""
        used = sum(len(c) for c in self.disk.image().values() if c is not None)
        self.disk.capacity = used + self._random.randrange(600)
        for _ in range(6):
            self._attempt()
        if self._random.random() < 0.3:
            self._do_mark_on_full_disk()
        self.disk.capacity = NO_LIMIT
        assert self._attempt(), "writes must resume by themselves when room returns"

    def _do_quota(self) -> None:
        """A quota is used up where everything takes room but to remove a file, and given up again.

        Now and then somebody else takes at once what the reserve gave up.
        """
        used = sum(len(c) for c in self.disk.image().values() if c is not None)
        self.disk.copying = COPYING
        self.disk.quota = used + self._random.randrange(600)
        if self._random.random() < 0.5:
            self.disk.plan = _refuse_to_cut
        for _ in range(6):
            self._attempt()
        way = self._random.randrange(4)
        if way == 0:
            self._do_mark_on_full_disk()
        elif way < 3:
            if way == 1:
                self.disk.kill()
            else:
                self._log.close(released=self._released())
                self._directory.close()
            self._open_or_refuse()
        self._end_of_quota()
        assert self._attempt(), "writes must resume by themselves when room returns"

    def _open_or_refuse(self) -> None:
        try:
            self._open()
        except DiskFull:  # more than the reserve holds is to be recovered
            self.disk.kill()
            self._end_of_quota()
            self._open()

    def _end_of_quota(self) -> None:
        self.disk.copying, self.disk.quota, self.disk.plan = 0, NO_LIMIT, None

    def _do_mark_on_full_disk(self) -> None:
        try:
            self._log.mark(released=self._released())
        except DiskFull:
            return

    def _do_failed_sync(self) -> None:
        self._fail("sync", Fault(errno.EIO))

    def _do_failed_write(self) -> None:
        self._fail("append", Fault(errno.EIO, self._random.randrange(300)))

    def _fail(self, failing: str, fault: Fault) -> None:
        """One operation on a segment fails: final. The process ends, the machine goes on."""

        def plan(kind: str, path: str) -> Fault | None:
            return fault if kind == failing and path.endswith(".storelog") else None

        self.disk.plan = plan
        try:
            self._attempt()
            raise Broken(f"a failed {failing} was acknowledged")
        except LogFailed:
            changes = self._refused_afterwards()
        self.disk.plan = None
        if changes:
            raise Broken("a failed log went on asking the disk for changes")
        self.disk.kill()
        self._open()

    def _refused_afterwards(self) -> int:
        """Nothing more may be written. Returns how many changes were asked of the disk."""
        before = self.disk.operations
        try:
            self._log.append(
                [Frame(self._log.state.last + 1, 9_999, self._log.state.last_time, 0, b"")]
            )
            raise Broken("a failed log took a frame")
        except LogFailed:
            pass
        return self.disk.operations - before


def _refuse_to_cut(kind: str, path: str) -> Fault | None:
    return Fault(errno.EDQUOT) if kind == "truncate" and path.endswith(".storelog") else None


def enumerate_crashes(
    seed: int,
    states: int,
    log_class: type[Log] = Log,
    per_point: int = 24,
    key: Key | None = None,
    follows: bool = False,
) -> Enumeration:
    """Run workloads from a seed on until so many crash states were checked."""
    enumeration = Enumeration(seed, states, log_class, per_point, key=key)
    while enumeration.states < states:
        Workload(seed, log_class, enumeration, key, follows).run(40)
        seed += 1_000
    return enumeration
