"""What a test of the contract says in each language: the same little programs, once for each."""

# ruff: noqa: E501 - programs stand as they are

from __future__ import annotations

from dataclasses import dataclass, replace

from ....sandbox.port import Language

__all__ = ["LANGUAGES", "Programs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Programs of one language. `tools.ask` is a function of the host, `tools.tell` another."""

    value: str
    """Ends with {"a": [1, None, "ä"]}."""
    prints: str
    """Prints `one` and a line `two 2`, and has no value."""
    prints_much: str
    """Prints the line `123456789` five times."""
    prints_around_a_call: str
    """Prints `before`, asks, prints `after` and what it was answered."""
    raises: str
    """Fails with the words `out of cheese` in its second line."""
    cannot_be_read: str
    asks: str
    """Asks with "two words", {"n": [1, None]} and ends with the answer."""
    asks_and_catches: str
    """Asks, and ends with the words of the refusal as it caught it."""
    asks_without_catching: str
    asks_for_ever: str
    """Asks without end, and catches everything."""
    asks_two_at_once: str
    """Asks with "a" and with "b" at the same time, ends with both answers in a list."""
    asks_for_more: str
    """Calls `tools.other`, which the job does not have."""
    chance: str
    """Ends with the time in seconds and three random numbers."""
    waits: str
    """Waits for longer than any test."""
    works: str
    """Works for longer than it may."""
    grows: str
    """Takes memory without end."""
    keeps: str
    """Leaves a name behind that `finds` would find."""
    finds: str
    """Ends with "nothing" when nothing was left."""
    reads_and_writes: str
    """Reads /in.txt, and writes its text and ` more` to /out/new.txt."""
    reads: str
    """Ends with what is in the file PATH; any failure will do."""


_JAVASCRIPT = Programs(
    value="({a: [1, null, 'ä']})",
    prints="console.log('one'); console.log('two', 2); undefined",
    prints_much="for (let i = 0; i < 5; i++) console.log('123456789')",
    prints_around_a_call="console.log('before'); console.log('after', await tools.ask())",
    raises="const cheese = 1;\nthrow new Error('out of cheese')",
    cannot_be_read="const = ;",
    asks="await tools.ask('two words', {n: [1, null]})",
    asks_and_catches="let told; try { await tools.ask() } catch (error) { told = error.message } told",
    asks_without_catching="await tools.ask(); 'never'",
    asks_for_ever="for (;;) { try { await tools.ask() } catch {} finally { continue } }",
    asks_two_at_once="await Promise.all([tools.ask('a'), tools.ask('b')])",
    asks_for_more="await tools.other()",
    chance="[Date.now() / 1000, Math.random(), Math.random(), Math.random()]",
    waits="await new Promise((done) => setTimeout(done, 1e6))",
    works="let n = 0; for (;;) { try { n++ } catch {} finally { continue } }",
    grows="const all = []; for (;;) all.push('x'.repeat(100000) + all.length)",
    keeps="globalThis.left = 1; Array.prototype.left = 2; Object.prototype.left = 3; 'kept'",
    finds="typeof left === 'undefined' && [].left === undefined ? 'nothing' : 'something'",
    reads_and_writes="files.write('/out/new.txt', files.read('/in.txt') + ' more')",
    reads="files.read('PATH')",
)
_TYPESCRIPT = replace(
    _JAVASCRIPT,
    value="interface A { a: unknown[] }\nconst made: A = {a: [1, null, 'ä']}; made",
    raises="const cheese: number = 1;\nthrow new Error('out of cheese') as Error",
    cannot_be_read="const x: number = ;",
    asks="const given: {n: (number | null)[]} = {n: [1, null]}; await tools.ask('two words', given) as string",
)
_PYTHON = Programs(
    value="{'a': [1, None, 'ä']}",
    prints="print('one')\nprint('two', 2)\nNone",
    prints_much="for i in range(5):\n    print('123456789')",
    prints_around_a_call="print('before')\nprint('after', await tools.ask())",
    raises="cheese = 1\nraise ValueError('out of cheese')",
    cannot_be_read="def (:",
    asks="await tools.ask('two words', {'n': [1, None]})",
    asks_and_catches="told = ''\ntry:\n    await tools.ask()\nexcept Exception as error:\n    told = str(error)\ntold",
    asks_without_catching="await tools.ask()\n'never'",
    asks_for_ever="while True:\n    try:\n        await tools.ask()\n    except BaseException:\n        pass",
    asks_two_at_once="import asyncio\nlist(await asyncio.gather(tools.ask('a'), tools.ask('b')))",
    asks_for_more="await tools.other()",
    chance=(
        "import random\nfrom datetime import datetime, timezone\n"
        "[datetime.now(timezone.utc).timestamp(), random.random(), random.random(), random.random()]"
    ),
    waits="import asyncio\nawait asyncio.sleep(1000000)",
    works="n = 0\nwhile True:\n    try:\n        while True:\n            n += 1\n    except BaseException:\n        pass",
    grows="x = [0]\nwhile True:\n    x = x + x",
    keeps="left = 1\n'kept'",
    finds="found = 'nothing'\ntry:\n    left\n    found = 'something'\nexcept NameError:\n    pass\nfound",
    reads_and_writes=(
        "with open('/in.txt') as file:\n    text = file.read()\n"
        "with open('/out/new.txt', 'w') as file:\n    file.write(text + ' more')"
    ),
    reads="open('PATH').read()",
)
LANGUAGES: dict[Language, Programs] = {
    "javascript": _JAVASCRIPT,
    "typescript": _TYPESCRIPT,
    "python": _PYTHON,
}
