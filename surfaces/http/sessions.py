"""POST and DELETE /session, POST /password: sign-in, sign-out, change of a password."""

from __future__ import annotations

from actors.runtime import ask
from protocol.errors import BadRequest, ForeignOrigin, SignInRefused
from protocol.requests import ChangePassword, Session, SignIn, SignOut
from protocol.text import duration, format_datetime, format_duration
from surfaces.http import cors
from surfaces.http.callers import answered, caller
from surfaces.http.credentials import Password, Token, credential
from surfaces.http.handler import Handler


class SessionHandler(Handler):
    """Exchanges a password for a session token; ends a session."""

    async def post(self) -> None:
        """Sign in with a Basic credential or a JSON body, not with both.

        A page of any site can make a browser send a request without a credential to this machine.
        It could thus try passwords from an address that is trusted here. But neither Content-Type
        JSON nor a credential in the head can be sent without a preflight, which is never granted.
        """
        self._refuse_other_sites()
        given = credential(self.asked)
        if isinstance(given, Token):
            raise BadRequest("a session needs a password: send Basic, or user and password")
        if given is None and not self.request.body:
            raise SignInRefused("a session needs a password: send Basic, or user and password")
        if given is None:
            if not self.asked.fields.get(b"content-type"):
                raise BadRequest("/session reads application/json: send that Content-Type")
            given = Password(*self.fields("user", "password"))
        elif self.request.body:
            raise BadRequest("send either a Basic credential or a body, not both")
        connection, sessions = self.exchange.connection, self.surface.node.sessions
        sign_in = SignIn(
            given.user, given.password, "http", connection.address, lambda: connection.closed
        )
        session = await answered(self.exchange, ask(sessions, sign_in))
        if connection.closed:  # the token was not delivered, so no client could end the session
            await ask(sessions, SignOut(session.token))
            return
        self.answer(_shown(session))

    def _refuse_other_sites(self) -> None:
        origin = cors.foreign_page(self.asked, self.surface.node.status())
        if origin is not None:
            raise ForeignOrigin(
                f"a page of {origin!r} may not sign in: it is not in the node's ORIGINS",
                origin=origin,
            )

    async def delete(self) -> None:
        """Sign out."""
        given = credential(self.asked)
        if not isinstance(given, Token):
            raise BadRequest("no token to sign out: send Authorization: Bearer")
        await ask(self.surface.node.sessions, SignOut(given.token))
        self.set_status(204)


class PasswordHandler(Handler):
    """Changes the caller's own password."""

    async def post(self) -> None:
        """Change it; the user's other sessions end."""
        who = await caller(self.exchange)
        old, new = self.fields("old", "new")
        change = ChangePassword(who, old, new)
        await answered(self.exchange, ask(self.surface.node.sessions, change))
        self.set_status(204)


def _shown(session: Session) -> dict[str, object]:
    who = session.caller
    return {
        "token": session.token,
        "expires": format_datetime(session.expires),
        "idle": format_duration(duration(session.idle_seconds * 1_000_000)),
        "user": {"name": who.user, "role": who.role, "space": who.space},
    }
