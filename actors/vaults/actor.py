"""Vaults actor: unseals and seals, changes passphrases, and runs key rotation.

A caller is authorized before any hash, and again in the loop iteration that acts: a hash takes
long, and other work goes on meanwhile. A wrong passphrase is answered late, with one text, as a
wrong password is (`actors/sign_in_throttle.py`). Unsealed keys are never stored.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final

from actors.passwords import HashRequester
from actors.runtime import LoopActor, handles
from actors.sign_in_throttle import SignInThrottle, Try
from actors.sign_ins import ReleaseDelayed
from actors.vaults.keyring import Keyring
from actors.vaults.parts import VaultParts
from actors.vaults.rekeying import ATTEMPTS, Rekeying
from actors.vaults.rotation import Rotation, SealAgain
from actors.vaults.service import VaultService
from actors.vaults.trail import HEADS_SECONDS, VaultAct
from protocol import limits
from protocol.errors import (
    FROM_OUTSIDE,
    AuditRefused,
    BadRequest,
    Busy,
    Conflict,
    DiskFull,
    NotAllowed,
    Refusal,
    Sealed,
    TooManyTries,
    Unknown,
    UnknownOutcome,
    WrongKey,
)
from protocol.requests import Caller
from protocol.rights import OWN, UNSEAL
from protocol.rights import STORE as STORE_NOUN
from protocol.vaults import (
    ChangePassphrase,
    Seal,
    ShowVaults,
    Unseal,
    VaultState,
    VaultStates,
    check_passphrase,
)
from storage.txn.tickets import CommitTicket
from storage.txn.transaction import Transaction
from storage.vaults import vaults
from storage.vaults.cipher import SALT_BYTES, RootWrap, new_key, unwrap_root, wipe, wrap_root
from storage.vaults.rows import StoreRow
from storage.vaults.vaults import Vault

AT_ONCE: Final = 64
"""Vaults inspected between two yields of the loop."""
PROVEN: Final = 1_024
"""Sessions remembered as proven: they have brought the right passphrase."""
WRONG: Final = "wrong passphrase"
CHANGED: Final = "the passphrase was changed meanwhile: try again"
UNRECORDED: Final = "there is no room on the disk for the audit entry"
_SECOND_US: Final = 1_000_000
_Asked = Unseal | Seal | ChangePassphrase


@dataclass(frozen=True, slots=True)
class _Change:
    """Change of a passphrase, after all slow steps. The caller wipes its plain keys."""

    store: StoreRow | None
    wrap: RootWrap | None
    """Rows that the old passphrase opened, to detect a concurrent change."""
    root: bytearray = field(repr=False)
    """Current root key; empty: there is none."""
    fresh: bytearray = field(repr=False)
    """New root key; the same object as `root` unless all keys are replaced."""
    wrapping: bytearray = field(repr=False)
    """Wrapping key of the new passphrase."""
    salt: bytes

    @property
    def rekeys(self) -> bool:
        """True if all keys are replaced."""
        return self.fresh is not self.root


class VaultsActor(LoopActor):
    """Actor behind UNSEAL, SEAL, PASSPHRASE and key rotation."""

    def __init__(self, parts: VaultParts, keyring: Keyring, service: VaultService) -> None:
        runtime, rng = parts.runtime, parts.rng
        super().__init__(runtime)
        self._keyring = keyring
        self._service = service
        self._committer = parts.committer
        self._roles = parts.roles
        self._rights = parts.rights
        self._passwords = parts.passwords
        self._sessions = parts.sessions
        self._statements = parts.statements
        self._random = rng.bytes
        self._settings = parts.told
        self._throttle = SignInThrottle(runtime.clock, rng, self.after)
        self._proven: OrderedDict[tuple[int, str], None] = OrderedDict()
        """Proven passphrases, by trail and session: right at the last attempt."""
        self._ends: dict[int, tuple[int, Vault | None]] = {}
        """Unsealed vaults (or the store) and their end on the monotonic clock, in µs."""
        self._seals: dict[int, int] = {}
        """Number of seals on request, and of root key changes, by trail."""
        self._leads_ended = 0
        """Number of times that everything was sealed because the node stopped leading."""
        self._rotation = Rotation(parts, keyring, service, self.actor_ref, self.after)
        self._rekeying = Rekeying(service, rng)

    def on_start(self) -> None:
        """Begin with everything sealed."""
        self._keyring.seal_all()
        self._service.wake = self._rotation.wake
        self._service.leads_no_more = self._leads_no_more
        self.after(HEADS_SECONDS, self._say_heads)

    def on_stop(self) -> None:
        """Seal everything: the node stops, or this actor, which runs the timers, has failed."""
        self._service.reveals.close()
        self._service.trail.close()
        self._keyring.seal_all()

    def _say_heads(self) -> None:
        self._service.trail.log_heads()
        self.after(HEADS_SECONDS, self._say_heads)

    # --- unseal and seal --------------------------------------------------------------------------

    @handles(Unseal)
    async def unseal(self, message: Unseal) -> datetime:
        """Unseal for a limited time. Return its end by the wall clock."""
        self._roles.check_answering(message.caller)
        self._committer.check_writable()
        async with self._reading() as tx:
            act = self._authorize_act(tx, message, "unseal")
            store, wrap = self._wrapped(tx, act)
            if store is None or wrap is None:
                raise self._refused(message, act, _unset(act.vault), tx)
        root = await self._opened(message, act, store, wrap, message.passphrase, tx.ticket)
        try:
            async with self._reading() as tx:
                act = self._authorize_act(tx, message, "unseal")
                if self._wrapped(tx, act) != (store, wrap):
                    raise Busy(CHANGED)
                until_us = self.runtime.clock.monotonic_us() + self._settings.unseal_us
                self._service.trail.add(tx, act)
                ticket = self._commit(tx, message)
            # A SEAL or a change of keys during the wait wins over this unseal.
            seals = self._times_sealed(act.trail)
            await self._kept(ticket)
            if self._times_sealed(act.trail) != seals:
                raise Sealed("it was sealed or got other keys meanwhile: try again")
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

    def _times_sealed(self, of: int) -> int:
        return self._seals.get(of, 0) + self._leads_ended

    def _over(self, of: int, until_us: int) -> None:
        """Seal at the end of an unseal's time."""
        found = self._ends.get(of)
        if found is None or found[0] != until_us:
            return  # sealed on request, or unsealed again
        del self._ends[of]
        act = VaultAct("seal", None, found[1], reason="its time was over")
        self._service.trail.did(act)
        self._keyring.seal(of)

    @handles(Seal)
    async def seal(self, message: Seal) -> None:
        """Seal at once, even if that can't be recorded; a log line then replaces the entry.

        It works also on a node without a role, or one that knows too little of its cluster to
        respond.
        """
        async with self._reading() as tx:
            act = self._authorize_act(tx, message, "seal")
            self._service.trail.add(tx, act)
            try:
                ticket = self._commit(tx, message)
            except Refusal as refusal:  # no refusal may keep open what is to be sealed
                ticket = None
                self._service.trail.limited_log.warning(
                    "sealed without an audit entry", user=message.caller.user, why=refusal.code
                )
        self._count_seal(act.trail)
        self._ends.pop(act.trail, None)
        self._keyring.seal(act.trail)
        if ticket is not None:
            await self._kept(ticket)

    def _leads_no_more(self) -> None:
        """Seal everything when this node stops leading.

        Another leader may change the keys before this node leads again, and unreleased changes may
        be lost.
        """
        self._leads_ended += 1
        self._ends.clear()
        self._keyring.seal_all()

    # --- passphrases ------------------------------------------------------------------------------

    @handles(ChangePassphrase)
    async def change_passphrase(self, message: ChangePassphrase) -> int:
        """Wrap the root key under another passphrase, or replace all keys."""
        check_passphrase(message.new)
        self._roles.check_answering(message.caller)
        self._committer.check_writable()
        action = "rekey" if message.rekey else "passphrase"
        async with self._reading() as tx:
            act = self._authorize_act(tx, message, action)
            store, wrap = self._wrapped(tx, act)
            self._check_old(message, act, wrap, tx)
        with ExitStack() as plain:
            root = await self._old_root(message, act, store, wrap, tx.ticket)
            plain.callback(wipe, root)
            told, salt = self._settings, self._random(SALT_BYTES)
            asker = HashRequester(message.caller.user)
            wrapping = await self._passwords.derive(message.new, salt, told.stretch, asker)
            plain.callback(wipe, wrapping)
            fresh = new_key(self._random) if message.rekey or wrap is None else root
            plain.callback(wipe, fresh)
            change = _Change(store, wrap, root, fresh, wrapping, salt)
            for left in reversed(range(ATTEMPTS)):
                try:
                    ticket, count = await self._changed(message, action, change, bool(left))
                    break
                except Conflict:  # only if the attempt yielded the loop
                    if not left:
                        raise
        await self._kept(ticket)
        self._rotation.wake()
        return count + 1

    async def _changed(
        self, message: ChangePassphrase, action: str, change: _Change, paced: bool
    ) -> tuple[CommitTicket, int]:
        """Commit a change of passphrase. Return its ticket and the number of vaults with replaced
        keys.

        :param paced: True to yield the loop between batches of keys
        :raises Conflict: its read set was changed concurrently
        """
        stretch = self._settings.stretch
        async with self._reading() as tx:
            act = self._authorize_act(tx, message, action)
            if self._wrapped(tx, act) != (change.store, change.wrap):
                raise Busy(CHANGED)
            # Add the entry before the keys that authenticate it change.
            self._service.trail.add(tx, act)
            store = vaults.need_store_row(tx, self._random)
            made = wrap_root(
                change.wrapping, change.fresh, store.domain, act.trail, change.salt, stretch,
                self._random,
            )  # fmt: skip
            count = 0
            if change.rekeys:
                count = await self._rekey(tx, act, store, change, paced)
            self._put_wrap(tx, act, made)
            if tx.paused:
                for _ in self._committer.prepare(tx):
                    await asyncio.sleep(0)
            self._sessions.check_authenticated(message.caller)
            ticket = self._commit(tx, message)
        if change.rekeys:
            kept = self._keyring.replace_root(act.trail, change.fresh)
            self._count_seal(act.trail)  # an unseal under way has the old root key
            # The release may come after the request has timed out.
            self._committer.when_released(ticket, partial(self._settled, act.trail, kept))
        return ticket, count

    def _settled(self, of: int, root: bytearray | None, lost: BaseException | None) -> None:
        """Handle the end of a commit that replaced all keys.

        :param root: its root key, in the keyring; None: it was sealed
        :param lost: reason of its roll back; None: it is released
        """
        if root is not None:
            self._keyring.confirm_root(of, root, stays=lost is None)
        if lost is None:
            self._rotation.wake()

    async def _rekey(
        self, tx: Transaction, act: VaultAct, store: StoreRow, change: _Change, paced: bool
    ) -> int:
        """Replace the keys of all vaults under a root key. Return their number."""
        root, fresh = change.root, change.fresh
        if act.vault is not None:
            return await self._rekeying.renew(tx, [act.vault], root, fresh, paced=False)
        if paced:
            tx.pause()
        vaults.put_store_row(tx, replace(store, generation=store.generation + 1))
        under = self._rights.under_store(tx)
        return await self._rekeying.renew(tx, under, root, fresh, paced=paced)

    def _check_old(
        self, message: ChangePassphrase, act: VaultAct, wrap: RootWrap | None, tx: Transaction
    ) -> None:
        """Check that an old passphrase is given if there is one.

        :raises Sealed: there is no root key, but an old passphrase is given
        :raises BadRequest: there is a root key, but no old passphrase is given
        """
        if wrap is None:
            if message.old is not None or act.vault is not None:
                raise self._refused(message, act, _unset(act.vault), tx)
        elif message.old is None:
            raise BadRequest("a passphrase is set already: to change it, give the old one")

    async def _old_root(
        self,
        message: ChangePassphrase,
        act: VaultAct,
        store: StoreRow | None,
        wrap: RootWrap | None,
        seen: CommitTicket,
    ) -> bytearray:
        """Return the current root key; an empty one for a store that has none."""
        if store is None or wrap is None:
            return bytearray()
        assert message.old is not None, "it was asked for"
        return await self._opened(message, act, store, wrap, message.old, seen)

    def _put_wrap(self, tx: Transaction, act: VaultAct, made: RootWrap) -> None:
        if act.vault is None:
            store = vaults.need_store_row(tx, self._random)
            vaults.put_store_row(tx, replace(store, root=made))
        else:
            row = vaults.keys_row(tx, act.vault)
            vaults.put_keys_row(tx, act.vault, replace(row, root=made))

    # --- common steps -----------------------------------------------------------------------------

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Transaction]:
        """Open a transaction. A refusal that depends on its reads is raised once these are
        released.

        :raises Busy: commits that it has read were rolled back
        """
        with self._committer.begin_transaction() as tx:
            try:
                yield tx
            except Refusal as refusal:
                tx.release()
                if not (refusal.retry or isinstance(refusal, FROM_OUTSIDE)):
                    await self._until_released(tx.ticket)
                raise

    async def _until_released(self, seen: CommitTicket) -> None:
        """Wait until the commits that were read are released. :raises Busy: on a roll back"""
        try:
            await self._committer.released_in_time(seen)
        except (DiskFull, UnknownOutcome) as lost:
            if not self._committer.was_rolled_back(seen):
                raise
            raise Busy(CHANGED) from lost

    def _authorize_act(self, tx: Transaction, message: _Asked, action: str) -> VaultAct:
        """Authorize a request, and return it as an act for the trail.

        :raises SessionEnded: the caller's credential is no longer valid
        :raises Unknown, NotAllowed, BadRequest:
        """
        caller, names = message.caller, message.vault
        self._sessions.check_authenticated(caller)
        act = VaultAct(action, caller, None, request=message.request)
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
                # The caller must not be able to tell a hidden vault from an absent one.
                self._service.trail.unseen(act)
            raise
        if not vault.own:
            raise BadRequest(
                f"vault {vault.path} has no passphrase of its own: unseal the store instead"
            )
        return replace(act, vault=vault)

    def _wrapped(self, tx: Transaction, act: VaultAct) -> tuple[StoreRow | None, RootWrap | None]:
        """Return the store row, and the wrapped root key of the vault or the store."""
        store = vaults.store_row(tx)
        if act.vault is None:
            return store, None if store is None else store.root
        return store, vaults.keys_row(tx, act.vault).root

    async def _opened(
        self,
        message: _Asked,
        act: VaultAct,
        store: StoreRow,
        wrap: RootWrap,
        passphrase: str,
        seen: CommitTicket,
    ) -> bytearray:
        """Return the root key that a passphrase opens.

        :param seen: ticket of the read of `store` and `wrap`
        :raises WrongKey: the passphrase is wrong; raised after a delay
        :raises Busy: the passphrase is wrong, and the read was rolled back
        :raises TooManyTries: very many wrong passphrases came before
        """
        caller = message.caller
        of = act.trail, caller.session or ""
        proven = of in self._proven
        try:
            one = await self._throttle.enter(f"vault {act.trail}", caller.address, proven=proven)
        except TooManyTries as refusal:
            told = TooManyTries("too many wrong passphrases from this address: try again later")
            raise self._refused(message, act, told) from refusal
        try:
            root = await self._unwrapped(one, caller, store, wrap, act.trail, passphrase)
            if root is None:
                self._proven.pop(of, None)
                await one.failed()
                await self._until_released(seen)
                raise self._refused(message, act, WrongKey(WRONG))
            one.succeeded()
            self._note_proven(of)
        finally:
            one.end()
        return root

    def _note_proven(self, of: tuple[int, str]) -> None:
        """Remember a session as proven. Requests without a session are never proven."""
        if of[1]:
            self._proven[of] = None
            self._proven.move_to_end(of)
            if len(self._proven) > PROVEN:
                self._proven.popitem(last=False)

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
            passphrase = ""  # no valid one is so long
        asker = HashRequester(caller.user, one.network, one.rank)
        try:
            wrapping = await self._passwords.derive(passphrase, wrap.salt, wrap.stretch, asker)
            try:
                return unwrap_root(wrapping, wrap, store.domain, of)
            finally:
                wipe(wrapping)
        except WrongKey:
            return None

    def _commit(self, tx: Transaction, message: _Asked) -> CommitTicket:
        """Commit an act with its entries. :raises AuditRefused: there is no disk space for it"""
        tx.ignores_locks = True
        place = (None, None) if message.vault is None else message.vault[:2]
        entry = self._statements.of(tx, message.caller, message.request, place, True)
        try:
            return self._committer.commit(tx, message.caller, _said(message), None, entry)
        except DiskFull as refusal:
            raise AuditRefused(UNRECORDED) from refusal

    async def _kept(self, ticket: CommitTicket) -> None:
        """Wait for the release of an act. :raises AuditRefused: it could not be recorded, so was
        not done"""
        try:
            await self._committer.released_in_time(ticket)
        except DiskFull as refusal:
            raise AuditRefused(UNRECORDED) from refusal

    def _refused(
        self, message: _Asked, act: VaultAct, refusal: Refusal, tx: Transaction | None = None
    ) -> Refusal:
        """Record a refusal in the trail, the statement log and the audit trail, and return it."""
        self._service.trail.refused(act, refusal)
        place = (None, None) if message.vault is None else message.vault[:2]
        with self._committer.begin_transaction() as fresh:
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

    @handles(ReleaseDelayed)
    def let_go(self, _message: ReleaseDelayed) -> None:
        """Release all delayed refusals: the node stops."""
        self._throttle.drain()

    @handles(SealAgain)
    async def seal_again(self, _message: SealAgain) -> None:
        """Re-encrypt values that older keys have sealed."""
        await self._rotation.run()

    # --- status -----------------------------------------------------------------------------------

    @handles(ShowVaults)
    async def show(self, message: ShowVaults) -> VaultStates:
        """Return the seal state of the store, and of the vaults that the caller sees."""
        while True:
            self._sessions.check_authenticated(message.caller)
            self._roles.check_answering(message.caller)
            states, ticket = await self._states(message.caller)
            try:
                await self._committer.released_in_time(ticket)
            except (DiskFull, UnknownOutcome):
                if not self._committer.was_rolled_back(ticket):
                    raise
            else:
                return states

    async def _states(self, caller: Caller) -> tuple[VaultStates, CommitTicket]:
        """Return the current seal states, and the ticket that their answer depends on."""
        service, found = self._service, list[VaultState]()
        with self._committer.begin_read_only() as tx:
            tx.pause()
            store = vaults.store_row(tx)
            for number, vault in enumerate(self._rights.vaults(tx, caller), start=1):
                if vault is not None:
                    names = (vault.database.namespace.name, vault.database.name, vault.name)
                    records = vaults.count(tx, vault)
                    found.append(VaultState(names, vault.own, service.state(vault), records))
                if not number % AT_ONCE:
                    await asyncio.sleep(0)
        is_set = store is not None and store.root is not None
        return VaultStates(is_set, service.state(None), tuple(found)), tx.ticket


def _unset(vault: Vault | None) -> Sealed:
    if vault is None:
        return Sealed("the store has no passphrase: an owner of the store must set one")
    return Sealed(f"vault {vault.path} was restored without its keys and cannot be opened")


def _said(message: _Asked) -> str:
    """Return the statement's text for the statement log."""
    word = {Unseal: "UNSEAL", Seal: "SEAL", ChangePassphrase: "PASSPHRASE"}[type(message)]
    of = "STORE" if message.vault is None else f"VAULT {'.'.join(message.vault)}"
    return (
        f"{word} {of}{' REKEY' if isinstance(message, ChangePassphrase) and message.rekey else ''}"
    )
