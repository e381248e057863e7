"""Writes the blocking client, `storeclient/blocking.py`, from the classes of the async one.

    python clients/python/unasync.py           # write it
    python clients/python/unasync.py --check   # exit with 1 if it is outdated

`AsyncX` becomes `X`: its public attributes and methods run those of an `AsyncX` on the event loop
of the client's thread. The rest is in `storeclient/twins.py`, by hand.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent / "storeclient"
TARGET: Final = PACKAGE / "blocking.py"
MODULES: Final = (
    "async_client", "database", "transactions", "moments", "watches", "mirrors", "cache", "topics",
    "groups", "vaults",
)  # fmt: skip
HEAD: Final = '''\
"""Blocking client: the async client on an event loop in a thread of its own.

Generated from the async classes by `unasync.py`: change those, or `twins.py`, not this file.
"""

from __future__ import annotations
'''
CLASSES: Final = {
    "Client": """\
A client of a store, for use from any number of threads at once.

All threads share one connection; a call blocks its own thread only. Otherwise it is like
`AsyncClient`: it connects when first used, reconnects after a broken connection, and never
repeats a request that may have run.

    with Client("localhost:8001", user="root", password=secret) as client:
        client.use("shop", "main")
        people = client.query("SELECT * FROM person WHERE age > $n", {"n": 30})

Do not use it across a fork: make a client in each process.

Parameters and errors are those of `AsyncClient`.
""",
    "Mirror": """\
Local copy of a table. Made by `Database.mirror`, filled on entering `with`.

Its methods may be called from any thread; each sees whole commits. Otherwise it is like
`AsyncMirror`.
""",
    "Publisher": """\
Publishes in batches. Made by `Topic.publisher`.

    with topic.publisher() as publisher:
        outcomes = [publisher.publish(one) for one in work]
    for outcome in outcomes:
        outcome.result()

Otherwise it is like `AsyncPublisher`.
""",
}
"""Docstrings of classes that differ in more than `async` and `await`."""
NOTES: Final = {
    "AsyncClient.backup": "`progress` is called in the client's thread.",
    "AsyncClient.use": "For all threads.",
    "AsyncConsumer.stop": "An iteration in another thread ends.",
    "AsyncDatabase.load": "`rows` are read, and `progress` is called, in the client's thread.",
    "AsyncDatabase.mirror": "`on_copy` is called in the client's thread.",
    "AsyncTopic.publisher": "Its `publish` does not block.",
}
"""Additions to docstrings of methods."""
ASYNC_ONLY: Final = (
    "AsyncConsumer.ack", "AsyncConsumer.done", "AsyncConsumer.nack", "AsyncConsumer.extend",
    "AsyncConsumer.give_up", "AsyncLease.renew", "AsyncMirror.lock", "AsyncWatch.on_move",
    "AsyncWatch.patient",
)  # fmt: skip
"""Public names without a blocking twin."""


class Module:
    """Classes of a module of the package, and where its names come from."""

    def __init__(self, name: str) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.names: dict[str, str | None] = {}
        """Modules of its names; None: the name is that of a module."""
        for node in ast.parse((PACKAGE / f"{name}.py").read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
                self.names[node.name] = f"storeclient.{name}"
            elif isinstance(node, ast.Import | ast.ImportFrom):
                origin = node.module if isinstance(node, ast.ImportFrom) else None
                self.names |= dict.fromkeys((one.name for one in node.names), origin)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                self.names[ast.unparse(_target(node))] = f"storeclient.{name}"


def _target(node: ast.Assign | ast.AnnAssign) -> ast.expr:
    return node.targets[0] if isinstance(node, ast.Assign) else node.target


TWINS: Final = Module("twins")
FIELDS: Final = Module("messages").classes
"""Classes whose fields async classes inherit."""
SOURCES: Final = [Module(name) for name in MODULES]
ASYNC: Final = {
    name: node
    for module in SOURCES
    for name, node in module.classes.items()
    if name.startswith("Async")
}


def blocking(name: str) -> str:
    """Return the name of the blocking twin."""
    return name.removeprefix("Async")


class _ToBlocking(ast.NodeTransformer):
    """Translates annotations."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(blocking(node.id)) if node.id in ASYNC else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if ast.unparse(node.value) in ("AsyncIterator", "AsyncGenerator"):
            of = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            return ast.Subscript(ast.Name("Iterator"), of)
        self.generic_visit(node)
        return node


def annotation(node: ast.expr | None) -> str:
    """Return an annotation of the blocking client."""
    assert node is not None
    return ast.unparse(_ToBlocking().visit(deepcopy(node)))


def docstring(text: str) -> str:
    """Return the docstring of a member as source text, or nothing."""
    return textwrap.fill(f'"""{text}"""', 92) + "\n" if text else ""


def about(node: ast.ClassDef) -> str:
    """Return the docstring of a blocking class."""
    text = CLASSES.get(blocking(node.name))
    if text is None:
        text = re.sub(
            r"Async(?=[A-Z])|async (?=with|for)|await ", "", ast.get_docstring(node) or ""
        )
        text += f"\n\nBlocks the calling thread; otherwise like `{node.name}`.\n"
    return f'"""{text}"""\n\n'


def short(text: str | None, name: str) -> str:
    """Return the first clause of an async docstring, with a reference to the rest of it."""
    if not text:
        return ""
    text = inspect.cleandoc(text)
    if "\n" in text:
        clause = re.split(r"[.;:](?=\s)|\n\n", text, maxsplit=1)[0].removesuffix(".")
        text = f"{' '.join(clause.split())}; see `{name}`."
    return f"{text} {NOTES[name]}" if name in NOTES else text


# --- members --------------------------------------------------------------------------------------


def attributes(node: ast.ClassDef) -> Iterator[tuple[str, str, str | None]]:
    """Yield the public attributes of a class: name, annotation, docstring."""
    for base in node.bases:
        if ast.unparse(base) in FIELDS:
            yield from attributes(FIELDS[ast.unparse(base)])
    yield from _assigned(node.body, "", {})
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and one.name == "__init__":
            given = {each.arg: each.annotation for each in (*one.args.args, *one.args.kwonlyargs)}
            yield from _assigned(one.body, "self.", given)


def _assigned(
    body: list[ast.stmt], prefix: str, given: dict[str, ast.expr | None]
) -> Iterator[tuple[str, str, str | None]]:
    """Yield the public names that statements assign. :param given: annotations of parameters"""
    for one, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        if not isinstance(one, ast.Assign | ast.AnnAssign):
            continue
        if not re.fullmatch(rf"{re.escape(prefix)}[a-z]\w*", name := ast.unparse(_target(one))):
            continue
        kind = (
            _kind(one.value, given) if isinstance(one, ast.Assign) else annotation(one.annotation)
        )
        text = None
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = after.value.value
        yield name.removeprefix(prefix), kind, str(text) if text else None


def _kind(value: ast.expr, given: dict[str, ast.expr | None]) -> str:
    """Return the annotation of an attribute that is assigned in `__init__`."""
    if isinstance(value, ast.Name) and given.get(value.id) is not None:
        return annotation(given[value.id])
    if isinstance(value, ast.Constant):
        return type(value.value).__name__
    assert isinstance(value, ast.Call), ast.unparse(value)
    return ast.unparse(value.func)


def signature(found: ast.arguments) -> tuple[str, str]:
    """Return the parameters as source text, and the arguments that pass them on. Futures belong to
    the event loop, and are left out."""
    kept: ast.arguments = _ToBlocking().visit(deepcopy(found))
    named = [
        (one, default)
        for one, default in zip(kept.kwonlyargs, kept.kw_defaults, strict=True)
        if "Future" not in ast.unparse(one)
    ]
    kept.kwonlyargs, kept.kw_defaults = map(list, zip(*named, strict=True)) if named else ([], [])
    passed = [one.arg for one in kept.args[1:]]
    passed += [f"{one.arg}={one.arg}" for one in kept.kwonlyargs]
    return ast.unparse(kept), ", ".join(passed)


def method(node: ast.FunctionDef | ast.AsyncFunctionDef, of: str) -> str:
    """Return a method as source text."""
    text = docstring(short(ast.get_docstring(node), f"{of}.{node.name}"))
    returns = annotation(node.returns)
    if node.decorator_list:
        return prop(node.name, returns, text)
    parameters, passed = signature(node.args)
    call = f"self._twin.{node.name}({passed})"
    is_iterator = returns.startswith("Iterator[")
    if isinstance(node, ast.AsyncFunctionDef) and not is_iterator:
        call = f"self._wait({call})"
    return function(f"{node.name}({parameters})", returns, text + result(call, node.returns))


def result(call: str, returns: ast.expr | None) -> str:
    """Return the statement that returns the blocking twin of the result of `call`."""
    text = annotation(returns)
    twin = next((one for one in map(blocking, ASYNC) if re.search(rf"\b{one}\b", text)), None)
    if text == "None":
        return call
    if text == "Self":
        return f"{call}\nreturn self"
    if text.startswith("Iterator["):
        return f"return self._each({call})"
    if twin is None:
        return f"return {call}"
    made = f"{twin}({{}}, self._submit)"
    if text == f"list[{twin}]":
        return f"return [{made.format('one')} for one in {call}]"
    if text == f"{twin} | None":
        return f"twin = {call}\nreturn None if twin is None else {made.format('twin')}"
    assert text == twin, text
    return f"return {made.format(call)}"


def function(head: str, returns: str, body: str) -> str:
    """Return a function as source text."""
    return f"def {head} -> {returns}:\n{textwrap.indent(body, '    ')}\n\n"


def prop(name: str, returns: str, text: str) -> str:
    """Return a property as source text."""
    return "@property\n" + function(f"{name}(self)", returns, f"{text}return self._twin.{name}")


# --- classes --------------------------------------------------------------------------------------


def twin_of(node: ast.ClassDef) -> str:
    """Return a blocking class as source text."""
    of, name = node.name, blocking(node.name)
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    by_name = {one.name: one for one in methods}
    by_hand = TWINS.classes.get(f"{name}Twin")
    inherited = next((ast.unparse(one) for one in node.bases if ast.unparse(one) in ASYNC), None)
    body = about(node)
    if inherited is not None:
        base = blocking(inherited)
        body += f"_twin: {of}\n\n"
    elif by_hand is not None:
        base = by_hand.name
    elif "__aexit__" in by_name:
        enters = ast.unparse(by_name["__aenter__"].body[0]) != "return self"
        base = f"{'Entered' if enters else 'Context'}Twin[{of}]"
    else:
        base = f"Twin[{of}]"
    if of == "AsyncClient":
        parameters, passed = signature(by_name["__init__"].args)
        body += function(f"__init__({parameters})", "None", f"super().__init__({of}({passed}))")
    left_out = {one.split(".")[1] for one in ASYNC_ONLY if one.split(".")[0] == of}
    for one in by_hand.body if by_hand is not None else ():
        if isinstance(one, ast.FunctionDef):
            left_out.add(one.name)
            twin = one if one.name.startswith("_") else by_name.get(one.name, one)
            assert _names(one.args) == _names(twin.args), f"parameters of {name}.{one.name}"
    for attribute, kind, text in attributes(node):
        if attribute not in left_out:
            body += prop(attribute, kind, docstring(short(text, f"{of}.{attribute}")))
    for one in methods:
        if not (one.name.startswith("_") or one.name in left_out):
            body += method(one, of)
    if "__anext__" in by_name:
        item = by_name["__anext__"].returns
        body += function("__iter__(self)", "Self", "return self")
        found = result("self._next(self._twin)", item)
        body += function("__next__(self)", annotation(item), found)
    return f"class {name}({base}):\n{textwrap.indent(body, '    ')}\n"


def _names(found: ast.arguments) -> list[str]:
    return [one.arg for one in (*found.args, *found.kwonlyargs)]


def imports(text: str, module: Module) -> dict[str, str | None]:
    """Return the names that a class uses, with the modules that they come from."""
    nodes = list(ast.walk(ast.parse(text)))
    own = {one.arg for one in nodes if isinstance(one, ast.arg)} | {"self", "twin", "one"}
    loaded = {
        one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
    }
    used = loaded - own - set(dir(builtins)) - set(map(blocking, ASYNC))
    return {name: (module.names | TWINS.names)[name] for name in used}


def generate() -> str:
    """Return the text of the blocking client."""
    body, needed = "", dict[str, str | None]()
    for module in SOURCES:
        for node in module.classes.values():
            if node.name in ASYNC:
                text = twin_of(node)
                for name, origin in imports(text, module).items():
                    assert needed.setdefault(name, origin) == origin, name
                body += text
    lines = [
        f"from {origin} import {name}" if origin else f"import {name}"
        for name, origin in needed.items()
    ]
    return formatted("\n".join([HEAD, *lines, body]))


def formatted(text: str) -> str:
    """Return source text in the form that `make check` asks for."""
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"],
            input=text, capture_output=True, check=True, text=True, encoding="utf-8",
        ).stdout  # fmt: skip
    return text


if __name__ == "__main__":
    found = generate()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(found, "utf-8")
    elif found != TARGET.read_text("utf-8"):
        sys.exit(f"{TARGET.name} is outdated: run {Path(__file__).name}")
