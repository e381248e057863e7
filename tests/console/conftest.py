"""A node, a browser, and a page that is signed in; whatever a page complains of fails its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    ViewportSize,
    WebError,
    expect,
)

from tests.browsers import CHROMIUM, launched
from tests.processes import PASSWORD, USER, NodeProcess, serving

ELSEWHERE = "console.example"
"""A name that the browser takes for another machine. It leads to this one."""
SECONDS = 30
"""How long something that was done may take to be seen: a limit on the wait, nothing to reach."""
IMPORT = "(name) => import(new URL(name, document.querySelector('script[type=module]').src).href)"
"""In a page: a module of the console, by its path."""
POLICY = (
    "addEventListener('securitypolicyviolation', (e) => console.error("
    "`policy: ${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`))"
)
"""Has a page complain on its console of what the policy forbade."""

expect.set_options(timeout=SECONDS * 1000)

SIZE: ViewportSize = {"width": 1280, "height": 800}


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for all that stand here. It keeps a loop running, beside which no test of a
    coroutine could run."""
    if CHROMIUM is None:
        pytest.skip("not installed: chromium")
    with launched(f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1") as found:
        yield found


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for each file of tests, with a database shop.main."""
    with serving(tmp_path_factory.mktemp("console") / "store") as found:
        found.script("DEFINE NAMESPACE shop; DEFINE DATABASE shop.main")
        yield found


@dataclass
class PageComplaints:
    """What a page complained of.

    :ivar allowed: beginnings of complaints that the test provokes
    """

    origin: str
    complaints: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)

    def allow(self, *beginnings: str) -> None:
        """Complaints that begin so are meant."""
        self.allowed += beginnings

    def unexpected(self) -> list[str]:
        return [one for one in self.complaints if not one.startswith(tuple(self.allowed))]

    def follow(self, context: BrowserContext) -> None:
        """Hear what the pages of a context complain of."""
        context.add_init_script(POLICY)
        self._hear(context)

    def listen(self, context: BrowserContext) -> Callable[[], None]:
        """Hear it of a context that has `POLICY` already, until what is returned is called."""
        heard = self._hear(context)

        def end() -> None:
            for event, hear in heard:
                context.remove_listener(event, hear)

        return end

    def _hear(self, context: BrowserContext) -> list[tuple[str, Callable[..., None]]]:
        heard: list[tuple[str, Callable[..., None]]] = [
            ("request", self._asked), ("weberror", self._thrown), ("console", self._said),
        ]  # fmt: skip
        for event, hear in heard:
            context.on(event, hear)  # type: ignore[call-overload]
        return heard

    def _thrown(self, error: WebError) -> None:
        self.complaints.append(f"thrown: {error.error}")

    def _said(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self.complaints.append(f"console: {said.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((f"{self.origin}/", "blob:", "data:")):
            self.complaints.append(f"request elsewhere: {request.url}")


def refusal_of(status: int | None = None) -> str:
    """How a page complains that the node has refused it something. :param status: None: any"""
    status_said = "" if status is None else f"{status} "
    return f"console: Failed to load resource: the server responded with a status of {status_said}"


def origin(node: NodeProcess) -> str:
    host, port = node.address("http")
    return f"http://{host}:{port}"


@pytest.fixture
def watch(node: NodeProcess) -> Iterator[PageComplaints]:
    """Fails a test whose pages complained: errors on the console, what the policy forbade, a
    request to elsewhere. What the node refuses is an error of the console too: `watch.allow` it."""
    found = PageComplaints(origin(node))
    yield found
    assert found.unexpected() == []


@pytest.fixture
def context(browser: Browser, watch: PageComplaints) -> Iterator[BrowserContext]:
    """A browser without a past, 1280 pixels wide."""
    found = browser.new_context(viewport=SIZE)
    found.set_default_timeout(SECONDS * 1000)
    watch.follow(found)
    yield found
    found.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


def sign_in(page: Page, user: str = USER, password: str = PASSWORD) -> None:
    """Fill in what is shown, and wait until it is gone."""
    page.get_by_label("User", exact=True).fill(user)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_label("Password", exact=True)).to_have_count(0)


@pytest.fixture(scope="module")
def kept(browser: Browser, node: NodeProcess) -> Iterator[Page]:
    """A page that the tests of a file share. It keeps its session, so that each of them can load it
    anew: to begin a browser's context and to sign in takes ten times as long."""
    found = browser.new_context(viewport=SIZE)
    found.set_default_timeout(SECONDS * 1000)
    found.add_init_script(POLICY)
    yield found.new_page()
    found.close()


@pytest.fixture
def console(
    request: pytest.FixtureRequest, kept: Page, node: NodeProcess, watch: PageComplaints
) -> Iterator[Page]:
    """A page of the console, just loaded, signed in as the owner of the store, at shop.main. With
    `@pytest.mark.own_page` it has a context of its own, and a session that is kept nowhere."""
    address = f"{origin(node)}/#/run/shop/main"
    if request.node.get_closest_marker("own_page"):
        page: Page = request.getfixturevalue("page")
        page.goto(address)
        sign_in(page)
        yield page
        return
    loaded(kept, address)
    end = watch.listen(kept.context)
    yield kept
    end()
    kept.unroute_all()
    kept.context.clear_permissions()
    for other in kept.context.pages[1:]:
        other.close()


@pytest.fixture
def modules(kept: Page, node: NodeProcess, watch: PageComplaints) -> Iterator[Page]:
    """The page that tests share, as the last one left it: for its modules, which see nothing of
    what it shows."""
    if not kept.url.startswith(origin(node)):
        loaded(kept, f"{origin(node)}/#/run/shop/main")
    end = watch.listen(kept.context)
    yield kept
    end()


def loaded(page: Page, address: str) -> None:
    """Load a page that is shared, so that nothing is left in it but its session."""
    page.goto("about:blank")
    page.set_viewport_size(SIZE)
    page.emulate_media(color_scheme="null", reduced_motion="null")
    page.goto(address)
    page.evaluate("localStorage.clear()")
    tabs, password = page.get_by_role("navigation", name="Tabs"), page.get_by_label("Password")
    expect(tabs.or_(password).first).to_be_visible()
    if page.evaluate("sessionStorage.length") == 0:
        page.get_by_label("Stay signed in").check()
        sign_in(page)


Opened = Callable[[str], Page]


@pytest.fixture
def opened(console: Page) -> Opened:
    """Goes to a view by its address: `opened("#/topics/shop/main/orders")`."""

    def go(address: str) -> Page:
        console.evaluate("(address) => { location.hash = address; }", address)
        return console

    return go
