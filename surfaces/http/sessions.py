"""POST and DELETE /session, POST /password."""

from __future__ import annotations

from actors.runtime import ask
from protocol.errors import BadRequest, SignInRefused
from protocol.requests import ChangePassword, Session, SignIn, SignOut
from protocol.text import duration, format_datetime, format_duration
from surfaces.http.credentials import Password, Token, caller, credential
from surfaces.http.handler import Handler


class SessionHandler(Handler):
    """A password becomes a token; a token is given up."""

    async def post(self) -> None:
        """Sign in with a Basic credential or a JSON body, not with both."""
        given = credential(self.asked)
        if isinstance(given, Token):
            raise BadRequest("a session begins with a password: Basic, or user and password")
        if given is None and not self.request.body:
            raise SignInRefused("a session begins with a password: Basic, or user and password")
        if given is None:
            given = Password(*self.fields("user", "password"))
        elif self.request.body:
            raise BadRequest("either a Basic credential or a body, not both")
        sign_in = SignIn(given.user, given.password, "http", self.exchange.connection.address)
        self.answer(_shown(await ask(self.surface.node.sessions, sign_in)))

    async def delete(self) -> None:
        """Sign out."""
        given = credential(self.asked)
        if not isinstance(given, Token):
            raise BadRequest("a session is ended with its token: Authorization: Bearer")
        await ask(self.surface.node.sessions, SignOut(given.token))
        self.set_status(204)


class PasswordHandler(Handler):
    """A user changes its own password."""

    async def post(self) -> None:
        """Change it; the user's other sessions end."""
        who = await caller(self.exchange)
        old, new = self.fields("old", "new")
        await ask(self.surface.node.sessions, ChangePassword(who, old, new, who.session))
        self.set_status(204)


def _shown(session: Session) -> dict[str, object]:
    who = session.caller
    return {
        "token": session.token,
        "expires": format_datetime(session.expires),
        "idle": format_duration(duration(session.idle_seconds * 1_000_000)),
        "user": {"name": who.user, "role": who.role, "space": who.space},
    }
