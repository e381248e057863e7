"""The text of a script in its file: what is written is read, and nothing else ever is."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from protocol.errors import BackupCorrupt, BackupCut, WrongKey
from storage.backups.scripts import ScriptText, writing
from storage.faults import StoreTooNew
from storage.formats import container
from storage.formats.container import BackupFileForm, ScriptFacts, form_of
from storage.formats.sealing import Key
from tests.simulation.environment import SeededRng
from tests.storage.backups import held
from tests.storage.backups.held import KEY, KEYS, OTHER_KEY, HeldFile

FACTS = ScriptFacts("0.1.0", held.STORE, "2026-01-01T00:00:00+00:00", 1, 7)
TEXT = b"-- storenode script 1\n" + random.Random(1).randbytes(1_000)


def written(key: Key | None, text: bytes = TEXT, seed: int = 1) -> bytes:
    parts: list[bytes] = []
    script = writing(FACTS, parts.append, SeededRng(seed), key)
    for at in range(0, len(text), 100):
        script.add(text[at : at + 100])
    data = script.end()
    assert (data.form, data.sequence, data.size) == (BackupFileForm.SCRIPT, 7, sum(map(len, parts)))
    return b"".join(parts)


def read(data: bytes, *keys: Key, step: int = 97) -> bytes:
    text, parts, at = ScriptText(HeldFile(data), keys), list[bytes](), 0
    while part := text.read(at, step):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "CHUNK_BYTES", 64)


@KEYS
@pytest.mark.parametrize("step", [1, 64, 97, 100_000])
def test_what_is_written_is_read_as_often_as_is_wanted(key: Key | None, step: int) -> None:
    data = written(key)
    assert form_of(HeldFile(data)) is BackupFileForm.SCRIPT
    assert read(data, OTHER_KEY, KEY, step=step) == TEXT
    text = ScriptText(HeldFile(data), (KEY,))
    assert (text.sealed, text.facts) == ((False, None) if key is None else (True, FACTS))
    for _ in range(2):
        assert text.read(0, 500) + text.read(500, 10_000) == TEXT


def test_only_its_key_opens_it() -> None:
    for keys in ((), (OTHER_KEY,)):
        with pytest.raises(WrongKey):
            read(written(KEY), *keys)


def test_every_cut_change_swap_and_splice_is_noticed() -> None:
    whole, other = written(KEY), written(KEY, TEXT[::-1], seed=2)
    broken = [whole[:at] for at in range(8, len(whole))]
    for at in range(8, len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << at % 8
        broken.append(bytes(flipped))
    spans = held.chunks(whole)
    for (a, b), (c, d) in pairwise(spans):
        broken += [
            whole[:a] + whole[c:d] + whole[a:b] + whole[d:],
            whole[:b] + whole[a:b] + whole[b:],
            whole[:a] + whole[b:],
            whole[:a] + other[a:b] + whole[b:],
        ]
    for data in broken:
        with pytest.raises((BackupCut, BackupCorrupt, WrongKey, StoreTooNew)):
            read(data, KEY)
