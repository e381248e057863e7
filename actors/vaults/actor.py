"""Unseals and seals, changes passphrases, and has values sealed again.

Rights are judged before anything is hashed, and again in the turn of the loop that acts: a hash
takes long, and everything else goes on meanwhile. What was wrong is answered late, as a wrong
password is (`actors/tries.py`), with one text. Nothing that is unsealed is stored.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final, Protocol

import structlog

from actors.commits import Committer, Promise
from actors.passwords import Asker, Passwords
from actors.rights import Rights
from actors.runtime import LoopActor, Runtime, handles
from actors.sessions import LetGo
from actors.statements import Statements
from actors.tries import Tries, Try
from actors.vaults.keyring import Keyring
from actors.vaults.rotation import Rotation, SealAgain
from actors.vaults.service import Vaults
from actors.vaults.told import VaultSettings
from actors.vaults.trail import HEADS_SECONDS, Act
from protocol import limits
from protocol.doors import Rng
from protocol.errors import (
    AuditRefused,
    BadRequest,
    Busy,
    DiskFull,
    NotAllowed,
    NotWritable,
    Refusal,
    Sealed,
    SessionEnded,
    TooManyTries,
    Unknown,
    WrongKey,
)
from protocol.requests import Caller
from protocol.rights import OWN, UNSEAL
from protocol.rights import STORE as STORE_NOUN
from protocol.vaults import (
    ChangePassphrase,
    Seal,
    ShowVaults,
    Standings,
    Unseal,
    VaultStanding,
    check_passphrase,
)
from storage import vaults
from storage.transactions import Transaction
from storage.vault_rows import StoreRow
from storage.vault_seals import (
    SALT_BYTES,
    RootWrap,
    new_key,
    unwrap_key,
    unwrap_root,
    wipe,
    wrap_key,
    wrap_root,
)
from storage.vaults import Vault

log = structlog.get_logger("vaults")

AT_ONCE: Final = 64
"""Vaults that are looked at before others have their turn."""
WRONG: Final = "the passphrase does not open it"
_SECOND_US: Final = 1_000_000
_Asked = Unseal | Seal | ChangePassphrase


class OpenSessions(Protocol):
    """Sessions, as far as somebody who waited for a hash has to be in one."""

    def is_open(self, name: str) -> bool:
        """Whether a session goes on."""


class VaultsActor(LoopActor):
    """See the head of the file."""

    def __init__(
        self,
        runtime: Runtime,
        service: Vaults,
        keyring: Keyring,
        committer: Committer,
        rights: Rights,
        passwords: Passwords,
        sessions: OpenSessions,
        statements: Statements,
        rng: Rng,
        told: VaultSettings,
    ) -> None:
        super().__init__(runtime)
        self._service = service
        self._keyring = keyring
        self._committer = committer
        self._rights = rights
        self._passwords = passwords
        self._sessions = sessions
        self._statements = statements
        self._random = rng.bytes
        self._told = told
        self._tries = Tries(runtime.clock, rng, self.after)
        self._ends: dict[int, tuple[int, Vault | None]] = {}
        """What is open: until when, on the monotonic clock."""
        self._seals: dict[int, int] = {}
        """How often each was sealed by somebody, or given another root key."""
        self._rotation = Rotation(
            runtime, committer, rights, service, keyring, rng, self.actor_ref, self.after
        )

    def on_start(self) -> None:
        """Begin sealed."""
        self._keyring.seal_all()
        self._service.wake = self._rotation.wake
        self.after(HEADS_SECONDS, self._say_heads)

    def on_stop(self) -> None:
        """The node stops, or nobody looks after what is open: all of it is sealed."""
        self._service.trail.close()
        self._keyring.seal_all()

    def _say_heads(self) -> None:
        self._service.trail.say_heads()
        self.after(HEADS_SECONDS, self._say_heads)

    # --- unseal and seal --------------------------------------------------------------------------

    @handles(Unseal)
    async def unseal(self, message: Unseal) -> datetime:
        """Open for a while; answers until when."""
        self._committer.check_writable()
        with self._committer.begin() as tx:
            act = self._judged(tx, message, "unseal")
            store, wrap = self._wrapped(tx, act)
        if store is None or wrap is None:
            raise self._refused(message, act, _unset(act.vault))
        root = await self._opened(message, act, store, wrap, message.passphrase)
        try:
            self._check_session(message.caller)
            with self._committer.begin() as tx:
                act = self._judged(tx, message, "unseal")
                if self._wrapped(tx, act) != (store, wrap):
                    raise Busy("the passphrase was changed in this moment: try again")
                until_us = self.runtime.clock.monotonic_us() + self._told.unseal_us
                self._service.trail.add(tx, act)
                promise = self._commit(tx, message)
            seals = self._seals.get(act.trail, 0)
            await self._kept(promise)
            if self._seals.get(act.trail, 0) != seals:
                raise Sealed("it was sealed, or given other keys, in this moment: try again")
        except BaseException:
            wipe(root)
            raise
        self._keyring.open(act.trail, store.domain, root, until_us)
        self._ends[act.trail] = (until_us, act.vault)
        left_us = until_us - self.runtime.clock.monotonic_us()
        self.after(max(left_us, 0) / _SECOND_US, partial(self._over, act.trail, until_us))
        self._rotation.wake()
        return self._service.at_wall(until_us)

    def _count_seal(self, of: int) -> None:
        self._seals[of] = self._seals.get(of, 0) + 1

    def _over(self, of: int, until_us: int) -> None:
        """The time of an unseal is over."""
        found = self._ends.get(of)
        if found is None or found[0] != until_us:
            return  # somebody has sealed it, or unsealed it again
        del self._ends[of]
        act = Act("seal", None, found[1], reason="its time was over")
        self._service.trail.did(act)
        self._keyring.seal(of)

    @handles(Seal)
    async def seal(self, message: Seal) -> None:
        """Close now. A node that takes no writes seals too, and says so in its log."""
        with self._committer.begin() as tx:
            act = self._judged(tx, message, "seal")
            self._service.trail.add(tx, act)
            try:
                promise = self._commit(tx, message)
            except (NotWritable, DiskFull, Busy) as refusal:
                promise = None
                log.warning("sealed, and not recorded", user=message.caller.user, why=refusal.code)
        self._count_seal(act.trail)
        self._ends.pop(act.trail, None)
        self._keyring.seal(act.trail)
        if promise is not None:
            await self._kept(promise)

    # --- passphrases ------------------------------------------------------------------------------

    @handles(ChangePassphrase)
    async def change_passphrase(self, message: ChangePassphrase) -> int:
        """Wrap the root key under another passphrase, or make all keys anew."""
        check_passphrase(message.new)
        self._committer.check_writable()
        action = "rekey" if message.rekey else "passphrase"
        with self._committer.begin() as tx:
            act = self._judged(tx, message, action)
            store, wrap = self._wrapped(tx, act)
        with ExitStack() as plain:
            root = await self._old_root(message, act, store, wrap)
            plain.callback(wipe, root)
            told, salt = self._told, self._random(SALT_BYTES)
            asker = Asker(message.caller.user)
            wrapping = await self._passwords.derive(message.new, salt, told.stretch, asker)
            plain.callback(wipe, wrapping)
            self._check_session(message.caller)
            fresh = new_key(self._random) if message.rekey or wrap is None else root
            plain.callback(wipe, fresh)
            with self._committer.begin() as tx:
                act = self._judged(tx, message, action)
                if self._wrapped(tx, act) != (store, wrap):
                    raise Busy("the passphrase was changed in this moment: try again")
                # Before the keys change that it is authenticated with.
                self._service.trail.add(tx, act)
                before = vaults.need_store_row(tx, self._random)
                made = wrap_root(
                    wrapping, fresh, before.domain, act.trail, salt, told.stretch, self._random
                )
                rekeyed = fresh is not root
                count = self._rekey(tx, act, before, root, fresh) if rekeyed else 0
                self._put_wrap(tx, act, made)
                promise = self._commit(tx, message)
            if rekeyed:
                self._keyring.replace_root(act.trail, fresh)
                self._count_seal(act.trail)  # an unseal on its way has the root key of before
            try:
                await self._kept(promise)
            except Refusal:
                self._keyring.settle_root(act.trail, newest=False)
                raise
            self._keyring.settle_root(act.trail, newest=True)
        self._rotation.wake()
        return count + 1

    async def _old_root(
        self,
        message: ChangePassphrase,
        act: Act,
        store: StoreRow | None,
        wrap: RootWrap | None,
    ) -> bytearray:
        """The root key as it is; of a store that has none so far an empty one."""
        if store is None or wrap is None:
            if message.old is not None or act.vault is not None:
                raise self._refused(message, act, _unset(act.vault))
            return bytearray()
        if message.old is None:
            raise BadRequest("it has a passphrase: changing it takes the old one")
        return await self._opened(message, act, store, wrap, message.old)

    def _rekey(
        self, tx: Transaction, act: Act, store: StoreRow, root: bytearray, fresh: bytearray
    ) -> int:
        """Another root key, and with it another key of each vault under it: the older ones stay
        until their values are sealed again. Answers how many vaults there were."""
        under = [act.vault] if act.vault is not None else self._rights.under_store(tx)
        count = 0
        for vault in under:
            row = vaults.keys_row(tx, vault)
            if row.current:
                wraps = {
                    version: wrap_key(
                        fresh,
                        unwrap_key(root, wrap, store.domain, vault.id, version),
                        store.domain,
                        vault.id,
                        version,
                        self._random,
                    )
                    for version, wrap in row.wraps.items()
                }
                row = self._service.next_key(tx, vault, replace(row, wraps=wraps), fresh)
                vaults.put_keys_row(tx, vault, row)
                count += 1
        if act.vault is None:
            vaults.put_store_row(tx, replace(store, generation=store.generation + 1))
        return count

    def _put_wrap(self, tx: Transaction, act: Act, made: RootWrap) -> None:
        if act.vault is None:
            store = vaults.need_store_row(tx, self._random)
            vaults.put_store_row(tx, replace(store, root=made))
        else:
            row = vaults.keys_row(tx, act.vault)
            vaults.put_keys_row(tx, act.vault, replace(row, root=made))

    # --- what all of them do ----------------------------------------------------------------------

    def _judged(self, tx: Transaction, message: _Asked, action: str) -> Act:
        """What is asked, by somebody who may. :raises Unknown, NotAllowed, BadRequest:"""
        caller, names = message.caller, message.vault
        act = Act(action, caller, None, request=message.request)
        try:
            if names is None:
                first = isinstance(message, ChangePassphrase) and message.old is None
                self._rights.node(tx, caller, OWN if first else UNSEAL)
                return act
            vault = self._rights.vault(tx, caller, names[:2], names[2], UNSEAL)
        except (NotAllowed, Unknown) as refusal:
            tried = None if names is None else self._rights.tried(tx, names[:2], names[2])
            act = replace(act, vault=tried)
            if isinstance(refusal, NotAllowed):
                self._refused(message, act, refusal, tx)
            elif tried is not None:
                # Nothing that the caller may look at tells it from one that is not there.
                self._service.trail.unseen(act)
            raise
        if not vault.own:
            raise BadRequest(
                f"vault {vault.path} has no passphrase of its own: the store's opens it"
            )
        return replace(act, vault=vault)

    def _wrapped(self, tx: Transaction, act: Act) -> tuple[StoreRow | None, RootWrap | None]:
        """The root key as it is stored, and what all vaults hang on."""
        store = vaults.store_row(tx)
        if act.vault is None:
            return store, None if store is None else store.root
        return store, vaults.keys_row(tx, act.vault).root

    async def _opened(
        self, message: _Asked, act: Act, store: StoreRow, wrap: RootWrap, passphrase: str
    ) -> bytearray:
        """The root key that a passphrase opens.

        :raises WrongKey: after a while: it does not
        :raises TooManyTries: after very many that did not
        """
        caller = message.caller
        try:
            one = await self._tries.begin(f"vault {act.trail}", caller.address)
        except TooManyTries as refusal:
            told = TooManyTries("too many wrong passphrases from this address")
            raise self._refused(message, act, told) from refusal
        try:
            root = await self._unwrapped(one, caller, store, wrap, act.trail, passphrase)
            if root is None:
                await one.failed()
                raise self._refused(message, act, WrongKey(WRONG))
            one.succeeded()
        finally:
            one.end()
        return root

    async def _unwrapped(
        self,
        one: Try,
        caller: Caller,
        store: StoreRow,
        wrap: RootWrap,
        of: int,
        passphrase: str,
    ) -> bytearray | None:
        if len(passphrase) > limits.PASSPHRASE_CHARACTERS_MAX:
            passphrase = ""  # none is so long
        asker = Asker(caller.user, one.network, one.rank)
        try:
            wrapping = await self._passwords.derive(passphrase, wrap.salt, wrap.stretch, asker)
            try:
                return unwrap_root(wrapping, wrap, store.domain, of)
            finally:
                wipe(wrapping)
        except WrongKey:
            return None

    def _commit(self, tx: Transaction, message: _Asked) -> Promise:
        """Commit what is done, with its entries."""
        tx.passes = True
        place = (None, None) if message.vault is None else message.vault[:2]
        entry = self._statements.of(tx, message.caller, message.request, place, True)
        return self._committer.commit(tx, message.caller, _said(message), None, entry)

    async def _kept(self, promise: Promise) -> None:
        """:raises AuditRefused: what was done could not be recorded, so it was not done"""
        try:
            await self._committer.released(promise)
        except DiskFull as refusal:
            raise AuditRefused("there is no room to record it") from refusal

    def _refused(
        self, message: _Asked, act: Act, refusal: Refusal, tx: Transaction | None = None
    ) -> Refusal:
        """Have a refusal recorded, in the trail, the statement log and the audit trail."""
        self._service.trail.refused(act, refusal)
        place = (None, None) if message.vault is None else message.vault[:2]
        with self._committer.begin() as fresh:
            fresh.touch(STORE_NOUN if act.vault is None else act.vault.database)
            self._statements.keep(
                fresh if tx is None else tx,
                message.caller,
                message.request,
                place,
                _said(message),
                audited=True,
                refusal=refusal,
            )
        return refusal

    def _check_session(self, caller: Caller) -> None:
        if caller.session is not None and not self._sessions.is_open(caller.session):
            raise SessionEnded("the session has ended: sign in again")

    @handles(LetGo)
    def let_go(self, _message: LetGo) -> None:
        """The node stops: nobody is made to wait for a refusal any more."""
        self._tries.drain()

    @handles(SealAgain)
    async def seal_again(self, _message: SealAgain) -> None:
        """There may be values that an older key has sealed."""
        await self._rotation.run()

    # --- how it stands ----------------------------------------------------------------------------

    @handles(ShowVaults)
    async def show(self, message: ShowVaults) -> Standings:
        """How it stands with the store, and with the vaults that the caller sees."""
        service, found = self._service, list[VaultStanding]()
        with self._committer.begin() as tx:
            tx.pause()
            store = vaults.store_row(tx)
            for number, vault in enumerate(self._rights.vaults(tx, message.caller), start=1):
                if vault is not None:
                    names = (vault.database.namespace.name, vault.database.name, vault.name)
                    records = vaults.count(tx, vault)
                    found.append(VaultStanding(names, vault.own, service.state(vault), records))
                if not number % AT_ONCE:
                    await asyncio.sleep(0)
            saw = tx.saw
        await self._committer.released(self._committer.promise(saw))
        is_set = store is not None and store.root is not None
        return Standings(is_set, service.state(None), tuple(found))


def _unset(vault: Vault | None) -> Sealed:
    if vault is None:
        return Sealed("the store has no passphrase: an owner of the store has to give it one")
    return Sealed(f"vault {vault.path} came without its keys: nothing opens it")


def _said(message: _Asked) -> str:
    """What the statement log says of it."""
    word = {Unseal: "UNSEAL", Seal: "SEAL", ChangePassphrase: "PASSPHRASE"}[type(message)]
    of = "STORE" if message.vault is None else f"VAULT {'.'.join(message.vault)}"
    return (
        f"{word} {of}{' REKEY' if isinstance(message, ChangePassphrase) and message.rekey else ''}"
    )
