"""Interactive prompt for statements."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import Console as Screen
from rich.text import Text

from storeclient import Refused, StoreError, Welcome
from surfaces.shell import names, scripts, statements
from surfaces.shell.cells import harmless
from surfaces.shell.completion import StatementCompleter
from surfaces.shell.forms import OutputFormat
from surfaces.shell.history import open_history, state_folder
from surfaces.shell.outcomes import CommandEnded
from surfaces.shell.refusals import explain
from surfaces.shell.session import ShellSession
from surfaces.shell.shortcuts import Quit, ShortcutRefused, Shortcuts

HISTORY: Final = "shell_history"
LEAVING: Final = frozenset({"exit", "quit", "exit;", "quit;"})
ASKING: Final = frozenset({"help", "help;"})
"""Words besides `\\?` that show the help."""


class Prompt:
    """Interactive session of a user."""

    def __init__(
        self, session: ShellSession, form: OutputFormat, environment: Mapping[str, str]
    ) -> None:
        self._session = session
        self._form = form
        self._screen = Screen(highlight=False, emoji=False, markup=False, soft_wrap=True)
        self._completer = StatementCompleter()
        history, problem = open_history(state_folder(environment) / HISTORY)
        if problem is not None:
            self.print_notice(problem)
        self._prompt: PromptSession[str] = PromptSession(
            history=history,
            completer=self._completer,
            complete_while_typing=False,
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation=lambda width, _line, _wraps: f"{'.' * (width - 1)} ",
            enable_open_in_editor=True,
        )
        self._shortcuts = Shortcuts(session, form, self.print_notice, self._run_file)

    def print_notice(self, line: str) -> None:
        """Print a line about the shell itself."""
        self._screen.print(Text(harmless(line), style="dim"))

    def greet(self, welcome: Welcome) -> None:
        """Print the first line: version and user, and the leader if this node is not writable."""
        user = welcome.user["name"] if welcome.user else "nobody"
        self.print_notice(
            f"storenode {welcome.version}, as {user}; \\? lists the shortcuts, \\q leaves"
        )
        if welcome.writable is False:
            at = (
                f", {', '.join(welcome.leader)} does: \\leader connects to it"
                if welcome.leader
                else ""
            )
            self.print_notice(f"this node is read-only{at}")

    async def run(self) -> None:
        """Run typed statements until the user leaves."""
        self._learn()
        try:
            while True:
                try:
                    # Ctrl-C is a key here. As a signal it is handled by the caller.
                    text = await self._prompt.prompt_async(self._mark, handle_sigint=False)
                except KeyboardInterrupt:
                    continue  # abandon the line, but not the shell
                except EOFError:
                    return
                if text.strip() in LEAVING:
                    return
                try:
                    await self._do(text)
                except Quit:
                    return
        finally:
            if self._completer.learning is not None:
                self._completer.learning.cancel()

    def interrupt(self) -> None:
        """Handle Ctrl-C while a statement runs."""
        if self._session.interrupt():
            self._screen.print()  # behind the ^C that the terminal has drawn
            self.print_notice(
                "cancelling; press Ctrl-C again to stop waiting for the node's answer"
            )

    async def _do(self, text: str) -> None:
        if not text.strip():
            return
        try:
            if text.strip() in ASKING:
                await self._shortcuts.run("\\?")
            elif text.lstrip().startswith("\\"):
                await self._shortcuts.run(text)
            else:
                answer = await self._session.run(text)
                scripts.show(self._form, answer.results, text)
        except (ShortcutRefused, CommandEnded) as refused:
            self._complain(str(refused))
        except StoreError as error:
            if isinstance(error, Refused):
                scripts.show(self._form, error.results, text)
            self._complain(explain(error, text))
        except ValueError as error:  # it can't be sent
            self._complain(str(error))
        except asyncio.CancelledError:
            if _is_ending():
                raise
            self._complain("stopped waiting; the statement may have run")
        if "\\use" in text or statements.declares(text):
            self._learn()

    async def _run_file(self, path: str) -> None:
        try:
            text = scripts.read(path)
            await scripts.run_script(self._session, self._form, text, path)
        except CommandEnded as ended:
            self._complain(str(ended))

    def _complain(self, message: str) -> None:
        self._screen.print(Text(message, style="red"))

    def _mark(self) -> FormattedText:
        place = ".".join(name for name in self._session.place if name is not None)
        return FormattedText([("bold", f"{place or 'storenode'}> ")])

    def _learn(self) -> None:
        """Fetch the names again, in the background."""
        if self._completer.learning is not None:
            self._completer.learning.cancel()
        self._completer.learning = asyncio.create_task(self._learn_names())

    async def _learn_names(self) -> None:
        found = await names.learn(self._session)
        if found is not None:
            self._completer.names = found


def _is_ending() -> bool:
    """Return True if the shell itself is being ended, rather than one script abandoned."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=Condition(_is_done))
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return keys


def _is_done() -> bool:
    """Return True if Enter runs the typed text; otherwise it starts another line."""
    buffer = get_app().current_buffer
    text = buffer.text.strip()
    if buffer.name != "DEFAULT_BUFFER":
        return False  # the search field of the history
    return (
        not text
        or text.startswith("\\")
        or text in LEAVING | ASKING
        or statements.is_complete(text)
    )
