"""Values of JavaScript that are small there and dear here, or say something else than they are."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from everthink.sandbox import javascript
from everthink.sandbox.javascript import MOST_VALUES, JavaScriptSandbox
from everthink.sandbox.port import HostRefused, Job, NoHost, Outcome
from tests.support.steps import steps

HALF = "\\ud800"


class Echo(NoHost):
    """Gives back what it is given, and remembers it."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    async def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Give it back."""
        self.given.append(args[0])
        return args[0]


def decoded(text: str) -> Any:
    return javascript._decoded(text.encode())  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("one", ["{}", "[]", "1", '{"a":{}}', '"x"', f'"{HALF}"'])
def test_no_more_values_are_read_than_the_bound(one: str) -> None:
    many = ",".join([one] * (MOST_VALUES + 1))

    def refused() -> None:
        with pytest.raises(HostRefused, match="holds more than 200,000 values"):
            decoded(f"[{many}]")

    assert steps(refused) < 20_000  # nobody looks at each of them


def test_as_many_values_as_the_bound_are_read() -> None:
    for one in ("{}", "[]", "1", '"x"'):
        many = ",".join([one] * (MOST_VALUES - 1))
        assert len(decoded(f"[{many}]")) == MOST_VALUES - 1


def test_a_text_of_commas_and_brackets_is_one_value() -> None:
    text = '[{\\",' * 100_000
    assert decoded(f'["{text}"]') == [text.replace('\\"', '"')]


def test_objects_are_looked_at_one_by_one_only_where_one_may_be_an_envelope() -> None:
    many = ",".join(["{}"] * 50_000)
    assert steps(lambda: decoded(f"[{many}]")) < 20_000
    assert decoded('[{"__int__":"12"},{"__bytes__":"aGk="},{"x":1}]') == [12, b"hi", {"x": 1}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1e999]", "1e999 is larger than any number"),
        (f'["{HALF}", 1e999]', "1e999 is larger than any number"),
        ("[-1" + "0" * 400 + ".5]", "is larger than any number"),
        ("[" + "9" * 5_000 + "]", "is no JSON"),
        ("[NaN]", "is no JSON"),
        (f'{{"{HALF}":1,"\\udc01":2}}', "would become one key"),
    ],
)
def test_what_would_arrive_as_something_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(HostRefused, match=words):
        decoded(text)


def test_numbers_that_are_large_and_halves_of_characters_that_are_alone_arrive() -> None:
    assert decoded("[1e308, 1.5, -1e-300]") == [1e308, 1.5, -1e-300]
    assert decoded(f'{{"a{HALF}": "{HALF}b", "n": {{"__int__": "5"}}}}') == {"a?": "?b", "n": 5}


@pytest.fixture
async def sandbox(anyio_backend: str) -> AsyncIterator[JavaScriptSandbox]:
    made = JavaScriptSandbox()
    yield made
    await made.aclose()


async def run(sandbox: JavaScriptSandbox, source: str, host: Echo | None = None) -> Outcome:
    job = Job(language="javascript", source=source, names={"tools.echo": ""})
    return await sandbox.run(job, host or Echo())


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("const e = new Error('lost?'); e.cause = e; throw e", "Error: lost?"),
        (
            "let e = new Error(''); for (let i = 0; i < 5e3; i++) e = new Error('', {cause: e}); throw e",
            "caused by more, and so on",
        ),
        (
            "const e = new TypeError(); Object.defineProperty(e, 'message', {get() { throw 1 }}); throw e",
            "TypeError: (its message cannot be read)",
        ),
        ("const e = new Error('a'); e.stack = () => 1; e.name = Symbol('q'); throw e", "Symbol(q): a"),
        ("throw new Error('eval_script:' + '9'.repeat(5000) + ':1')", "Error: eval_script:999"),
        (
            "throw new Proxy(new Error('x'), {get() { throw 5 }, getPrototypeOf() { throw 6 }})",
            "what was thrown cannot be read",
        ),
        ("await tools.echo({at: new Date(NaN)})", 'A Date (at "at") that is no time'),
        ("new Date(NaN)", "that is no time (Invalid Date)"),
        ("JSON.rawJSON('1e999')", "1e999 is larger than any number"),
        ("Array(250000).fill([])", "more than 200,000 values"),
        ("await tools.echo(Array(250000).fill([]))", "more than 200,000 values"),
    ],
)
async def test_code_reads_what_was_wrong(sandbox: JavaScriptSandbox, source: str, words: str) -> None:
    outcome = await run(sandbox, source)
    assert outcome.status == "failed"
    assert words in (outcome.error or ""), outcome.error
    assert (await run(sandbox, "40 + 2")).value == 42


@pytest.mark.anyio
@pytest.mark.slow
async def test_long_values_are_read_and_written_beside_the_event_loop_and_in_order(
    sandbox: JavaScriptSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_loop: list[int] = []
    for name in ("_decoded", "_packed"):
        real = getattr(javascript, name)

        def watched(value: Any, real: Any = real) -> Any:
            if threading.current_thread() is threading.main_thread():
                in_loop.append(len(value) if isinstance(value, bytes | str | list) else 0)
            return real(value)

        monkeypatch.setattr(javascript, name, watched)
    host = Echo()
    outcome = await run(
        sandbox,
        "const order = [], long = 'x'.repeat(300000);"
        "await Promise.all(Array.from({length: 20}, (_, n) => tools.echo(n % 3 ? `${n}` : long + n)"
        ".then((text) => order.push(text.slice(-2).replace('x', '')))));"
        "[order, Array(50000).fill(0)]",
        host,
    )
    assert outcome.status == "done", outcome.error
    assert [text[-2:].replace("x", "") for text in host.given] == [str(n) for n in range(20)]
    assert outcome.value[0] == [str(n) for n in range(20)]
    assert max(in_loop, default=0) < 64 * 1024
