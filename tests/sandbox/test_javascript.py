"""JavaScript and TypeScript in a child: what is particular to them."""

# ruff: noqa: E501 - programs stand as they are

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from everthink.sandbox.javascript import JavaScriptSandbox
from everthink.sandbox.port import HostRefused, Job, Limits, NoHost, Outcome
from everthink.testing.contracts.sandbox.case import Asked
from tests.mcp.serving import children, is_gone
from tests.sandbox.flat import stays_flat
from tests.shape.source import PACKAGE
from tests.support.samples import sample

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

LIMITS = Limits(wall=60, cpu=30)
NAMES = {"tools.ask": "", "tools.tell": ""}


@pytest.fixture
async def sandbox() -> AsyncIterator[JavaScriptSandbox]:
    before = children()
    opened = JavaScriptSandbox()
    yield opened
    await opened.aclose()
    assert children() == before


def job(source: str, **options: Any) -> Job:
    return Job(**{"language": "javascript", "source": source, "limits": LIMITS, "names": NAMES, **options})


async def ran(sandbox: JavaScriptSandbox, source: str, **options: Any) -> Outcome:
    return await sandbox.run(job(source, **options), options.pop("host", None) or Asked(_first))


async def value(sandbox: JavaScriptSandbox, source: str, **options: Any) -> Any:
    outcome = await ran(sandbox, source, **options)
    assert outcome.status == "done", outcome.error
    return outcome.value


async def _first(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return args[0] if args else None


# --- snippets


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", None),
        ("const x = 5; x * 2", 10),
        ("const x = 5;\nif (x) return x;\nreturn 0", 5),
        ("async () => { const asked = await tools.ask(7); return asked + 1 }", 8),
        ("async function main() { return 3 }\nmain()", 3),
        ("(async () => { return await tools.ask('x') })()", "x"),
        ("import path from 'node:path';\nexport default path.join('a', '..', 'b')", "b"),
        ("export default async () => 'called'", "called"),
        ("({toJSON: () => 'as it says'})", "as it says"),
        ("undefined", None),
        ("'return'; `import x from 'y'`; 1", 1),
    ],
)
async def test_a_snippet_is_written_in_many_ways(
    sandbox: JavaScriptSandbox, source: str, expected: object
) -> None:
    for language in ("javascript", "typescript"):
        assert await value(sandbox, source, language=language) == expected


@pytest.mark.memory_case(414)
@pytest.mark.parametrize(
    "source",
    ["() => 3", "async () => 3", "(input) => 3", "async ({n}) => { return 3 }", "() => 3;", "// it\n() => 3"],
)
async def test_an_arrow_function_is_called(sandbox: JavaScriptSandbox, source: str) -> None:
    for language in ("javascript", "typescript"):
        assert await value(sandbox, source, language=language, input={"n": 1}) == 3


@pytest.mark.memory_case(416)
@pytest.mark.parametrize(
    "source",
    ["const x = 3;", "let a = 1, b = a", "class A {}", "for (const x of [1]) {}", "if (false) { 1 }"],
)
async def test_statements_give_nothing(sandbox: JavaScriptSandbox, source: str) -> None:
    for language in ("javascript", "typescript"):
        assert await value(sandbox, source, language=language) is None


@pytest.mark.memory_case(419)
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("export default () => 3", 3),
        ("export default async () => 3;", 3),
        ("export default 1 + 2", 3),
        ("export default function () { return 3 }", 3),
        ("export default async function main() { return await tools.ask(3) }", 3),
        ("const n = 3;\nexport default () => n", 3),
        ("function main() { return 3 }\nexport default main", 3),
        ("export default class { go() { return 3 } }", None),
    ],
)
async def test_a_default_export_is_taken_out_and_called_unless_it_is_a_class(
    sandbox: JavaScriptSandbox, source: str, expected: object
) -> None:
    for language in ("javascript", "typescript"):
        assert await value(sandbox, source, language=language) == expected


@pytest.mark.memory_case(420)
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("function main() { return 3 }", 3),
        ("async function main() { return await tools.ask(3) }", 3),
        ("/* what it does */\nfunction main({ n }) { return n }", 3),
        ("function main() {\n  // no end in sight }\n  return 3;\n}\n", 3),
        ("function one() { return 1 }\nfunction two() { return 2 }", None),
        ("function one() { return 1 }\nconst x = one();", None),
    ],
)
async def test_a_function_that_stands_alone_is_called_and_one_of_several_is_not(
    sandbox: JavaScriptSandbox, source: str, expected: object
) -> None:
    for language in ("javascript", "typescript"):
        assert await value(sandbox, source, language=language, input={"n": 3}) == expected


async def test_a_mistake_in_a_function_that_stands_alone_is_told_at_its_place(
    sandbox: JavaScriptSandbox,
) -> None:
    outcome = await ran(sandbox, "function main() { return null.x }")
    assert "TypeError: cannot read property 'x' of null\n    at main (main:1:" in (outcome.error or "")
    outcome = await ran(sandbox, "function main() { return ( }")
    assert (outcome.error or "").startswith("SyntaxError")


@pytest.mark.memory_case(421)
@pytest.mark.parametrize(
    "source",
    [
        "(() => 3)()",
        "(async () => 3)()",
        "(function () { return 3 })()",
        "return 3",
        "if (true) return 3;\nreturn 4",
    ],
)
async def test_functions_that_call_themselves_and_returns_at_the_top_work(
    sandbox: JavaScriptSandbox, source: str
) -> None:
    for language in ("javascript", "typescript"):
        assert await value(sandbox, source, language=language) == 3


@pytest.mark.memory_case(396, 397)
async def test_bytes_come_through_calls_answers_and_results_and_of_a_view_what_it_shows(
    sandbox: JavaScriptSandbox,
) -> None:
    host = Asked(_first)
    source = """
const whole = new Uint8Array([0, 1, 2, 255]);
const back = await tools.ask({ view: whole.subarray(1, 3), buffer: whole.buffer, data: new DataView(whole.buffer, 3) }, whole);
[back.view instanceof Uint8Array, back.view.length, [...back.buffer], back, JSON.stringify(whole.subarray(2))]
"""
    outcome = await sandbox.run(job(source), host)
    sent = {"view": b"\x01\x02", "buffer": b"\x00\x01\x02\xff", "data": b"\xff"}
    assert host.calls == [("tools.ask", [sent, b"\x00\x01\x02\xff"], {})]
    assert outcome.value == [True, 2, [0, 1, 2, 255], sent, '{"0":2,"1":255}'], outcome.error


async def test_an_envelope_that_holds_no_bytes_is_an_object_on_our_side(sandbox: JavaScriptSandbox) -> None:
    assert await value(sandbox, "({ __bytes__: '%' })") == {"__bytes__": "%"}
    assert await value(sandbox, "({ __bytes__: 3 })") == {"__bytes__": 3}


async def test_what_a_function_returns_at_the_end_gets_the_input(sandbox: JavaScriptSandbox) -> None:
    assert await value(sandbox, "({n}) => n + input.n", input={"n": 2}) == 4


@pytest.mark.parametrize("number", [10, 2**53 + 1, -(2**70)])
async def test_whole_numbers_of_any_size_leave_and_come_as_bigint(
    sandbox: JavaScriptSandbox, number: int
) -> None:
    host = Asked(_first)
    # Those that a number of JavaScript can hold come back as one.
    outcome = await sandbox.run(job(f"const n = await tools.ask({number}n); [n, typeof n, {number}n]"), host)
    kind = "number" if abs(number) < 2**53 else "bigint"
    assert outcome.value == [number, kind, number], outcome.error
    assert host.calls == [("tools.ask", [number], {})]


async def test_what_cannot_be_written_as_json_is_said_to_be_so(sandbox: JavaScriptSandbox) -> None:
    for source in ("NaN", "const o = {}; o.o = o; o", "({toJSON() { throw 5 }})"):
        outcome = await ran(sandbox, source)
        assert (outcome.status, outcome.value) == ("failed", None)
        assert "cannot be written as JSON" in (outcome.error or "")
    outcome = await ran(sandbox, "'x'.repeat(2000000)")
    assert (outcome.status, outcome.value) == ("failed", None)
    assert "2,000,002 bytes, and may have 1,000,000 (file_bytes)" in (outcome.error or "")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("throw 'a text'", "Uncaught a text"),
        ("throw {code: 7}", 'Uncaught {"code":7}'),
        ("null.x", "TypeError: cannot read property 'x' of null\n    at main:1:1"),
        ("\n\nconst f = () => { throw new RangeError('r') };\nf()", "at f (main:3:29)\n    at main:4:1"),
        ("let y = 1;\nlet z = ;", "SyntaxError: unexpected token in expression: ';'\n    at main:2:1"),
        ("throw new Error('top', {cause: new Error('ground')})", "caused by Error: ground"),
        ("await new Promise(() => {})", "It waits for something that never comes"),
        ("const f = () => f() + 1; f()", "calls itself too deep"),
        ("await import('lodash')", "'lodash' is not here"),
        ("await tools.nothing()", "There is no tools.nothing here. There is: ask, tell"),
    ],
)
async def test_what_went_wrong_is_told_in_places_of_the_source(
    sandbox: JavaScriptSandbox, source: str, told: str
) -> None:
    outcome = await ran(sandbox, source)
    assert outcome.status == "failed"
    assert told in (outcome.error or "")


async def test_a_context_that_is_spent_costs_no_child(sandbox: JavaScriptSandbox) -> None:
    assert await value(sandbox, "1") == 1
    pids = sandbox.pids
    for source in ("const f = () => f() + 1; f()", "JSON.parse('['.repeat(1e6))", "for (;;) {}"):
        assert (await ran(sandbox, source, limits=Limits(cpu=0.3))).status != "done"
    assert await value(sandbox, "2") == 2
    assert sandbox.pids == pids


async def test_code_that_is_stopped_keeps_what_it_wrote(sandbox: JavaScriptSandbox) -> None:
    outcome = await ran(sandbox, "files.write('/kept', 'x'); for (;;) {}", limits=Limits(cpu=0.3))
    assert (outcome.status, outcome.changed) == ("timeout", {"/kept": b"x"})


async def test_code_that_awaits_two_hundred_thousand_times_comes_to_its_end(
    sandbox: JavaScriptSandbox,
) -> None:
    source = "let n = 0; while (n < 200000) { await null; n++ } n"
    assert await value(sandbox, source) == 200_000


async def test_a_call_that_nobody_awaits_is_still_made(sandbox: JavaScriptSandbox) -> None:
    host = Asked(_first)
    outcome = await sandbox.run(job("tools.ask(1).then(() => tools.tell(2)); 'end'"), host)
    assert (outcome.value, [name for name, _, _ in host.calls]) == ("end", ["tools.ask", "tools.tell"])


# --- TypeScript


async def test_typescript_as_models_write_it_runs(sandbox: JavaScriptSandbox) -> None:
    source = """
interface Item<T> { id: string; value?: T; readonly tags: readonly string[] }
type Kind = "a" | "b" | { [K in keyof Item<number> as `x${K & string}`]?: number };
enum Color { Red, Green = 5, Blue }
const enum Size { Small = 1 }
namespace Tax { export const rate = 0.5; export function of(n: number): number { return n * rate } }
abstract class Shape<T extends object = {}> {
  protected parts: T[] = []; readonly name!: string; declare hidden: string;
  constructor(private a: number, public readonly b: string = "q") {}
  abstract area(): number;
  get double(): number { return this.a * 2 }
}
class Box extends Shape implements Item<string> {
  id = "1"; tags = ["x"] as const; static #made = 0; static { Box.#made++ }
  override area(): number { return this.double + Box.#made }
}
function twice(a: string): string; function twice(a: number): number; function twice(a: any): any { return a + a }
const box = new Box(7, "w") satisfies Item<string>;
const same = <T,>(x: T): T => x;
const list: Array<[name: string, count?: number]> = Object.entries({ a: 1 } as Record<string, number>);
let unsure = box!.b!.length as unknown as number;
try { JSON.parse("{") } catch (error: unknown) { unsure += error instanceof SyntaxError ? 100 : 0 }
const told: { n: number } = await tools.ask<{ n: number }>({ n: 3 });
for (const [name, count = 0] of list) unsure += count;
[box.area(), Color.Blue, Size.Small, Tax.of(4), twice(2), same("s"), unsure, told.n]
"""
    assert await value(sandbox, source, language="typescript") == [15, 6, 1, 2, 4, "s", 102, 3]


async def test_typescript_that_cannot_be_read_is_told_so(sandbox: JavaScriptSandbox) -> None:
    outcome = await ran(sandbox, "const x: number = ;", language="typescript", path="script.ts")
    assert outcome.status == "failed"
    assert (outcome.error or "").startswith("SyntaxError: ")
    assert "script.ts" in (outcome.error or "")


# --- functions and modules


async def test_a_function_is_the_default_export_and_gets_input_and_context(
    sandbox: JavaScriptSandbox,
) -> None:
    source = """
export default async function run(input: {n: number}, context: any): Promise<unknown> {
  return [input.n, context.args, context.env.A, await context.tools.ask(5), context.files.list("/")]
}"""
    options: dict[str, Any] = {"style": "function", "language": "typescript", "input": {"n": 1}}
    given = await value(sandbox, source, args=("x",), env={"A": "b"}, files={"/f": b""}, **options)
    assert given == [1, ["x"], "b", 5, ["f"]]


async def test_a_function_may_also_be_exported_by_its_name(sandbox: JavaScriptSandbox) -> None:
    assert await value(sandbox, "export const run = (n) => n + 1", style="function", input=1) == 2
    assert await value(sandbox, "const f = () => 3; export { f as default }", style="function") == 3


async def test_a_module_without_a_function_is_told_what_is_missing(sandbox: JavaScriptSandbox) -> None:
    outcome = await ran(sandbox, "const run = 1", style="function")
    assert outcome.status == "failed"
    assert "export default async function run(input, context)" in (outcome.error or "")


async def test_modules_of_a_job_are_found_from_where_they_are_imported(sandbox: JavaScriptSandbox) -> None:
    modules = {
        "scripts/lib/one.ts": "import { two } from './two.js'; export const one: number = two + 1",
        "scripts/lib/two.ts": "import data from '../data.json'; export const two: number = data.n",
        "scripts/data.json": '{"n": 5}',
        "shared/index.js": "export default 100",
    }
    source = """
import { one } from './lib/one';
import shared from '../shared';
import { fromTree } from '/given/tree.js';
export default () => one + shared + fromTree
"""
    files = {"/given/tree.js": b"export const fromTree = 1000"}
    options: dict[str, Any] = {"modules": modules, "path": "scripts/main.ts", "files": files}
    assert await value(sandbox, source, style="function", **options) == 1_106


async def test_a_mistake_in_a_module_is_told_with_its_name(sandbox: JavaScriptSandbox) -> None:
    modules = {"a.ts": "export const a: = 1", "b.js": "export const b = 1;\nexport const boom = () => null.x"}
    broken = await ran(sandbox, "await import('./a')", modules=modules)
    assert "(a.ts)" in (broken.error or "")
    thrown = await ran(sandbox, "(await import('./b')).boom()", modules=modules)
    assert "at boom (b.js:2:" in (thrown.error or "")


# --- commands


async def test_a_command_has_arguments_variables_input_and_an_exit_code(sandbox: JavaScriptSandbox) -> None:
    source = """
import { readFileSync, writeFileSync, mkdirSync } from 'node:fs';
import path from 'path';
const [name] = process.argv.slice(2);
mkdirSync('/out', { recursive: true });
writeFileSync(path.join('/out', name), readFileSync('in.txt', 'utf8') + process.env.END);
process.stdout.write(`${stdin.trim()} `);
console.log(process.cwd(), args.length);
console.error('told');
try { process.exit(3) } catch { } finally { console.log('never') }
"""
    outcome = await ran(
        sandbox,
        source,
        style="command",
        args=("made.txt",),
        env={"END": "!"},
        stdin=b"typed\n",
        cwd="/work",
        files={"/work/in.txt": b"read"},
    )
    assert (outcome.status, outcome.exit_code, outcome.error) == ("done", 3, None)
    assert (outcome.stdout, outcome.stderr) == ("typed /work 1\n", "told\n")
    assert outcome.changed == {"/out/made.txt": b"read!"}


async def test_a_command_that_throws_ends_with_1_and_says_why(sandbox: JavaScriptSandbox) -> None:
    source = "async function main() { await tools.ask(); throw new Error('deep') }\nmain()"
    outcome = await ran(sandbox, source, style="command")
    assert (outcome.status, outcome.exit_code, outcome.error) == ("done", 1, None)
    assert outcome.stderr.startswith("Error: deep\n    at main (main:1:")


async def test_a_command_ends_when_nothing_is_left_to_do(sandbox: JavaScriptSandbox) -> None:
    outcome = await ran(
        sandbox, "setTimeout(() => { console.log('late'); process.exitCode = 4 }, 5)", style="command"
    )
    assert (outcome.stdout, outcome.exit_code) == ("late\n", 4)


# --- time and chance


async def test_timers_are_due_in_their_order_and_a_clock_that_stands_still_does_not_wait(
    sandbox: JavaScriptSandbox,
) -> None:
    source = """
const seen = [], began = Date.now();
const wait = (name, time) => new Promise((done) => setTimeout(() => { seen.push(name); done() }, time));
const every = setInterval(() => { seen.push('every'); if (seen.length > 3) clearInterval(every) }, 40);
clearTimeout(setTimeout(() => seen.push('never'), 1));
await Promise.all([wait('long', 90), wait('short', 10), wait('none', 0)]);
[seen, new Date().toISOString(), Date.now() - began]
"""
    seen, _, passed = await value(sandbox, source)
    assert [name for name in seen if name != "every"] == ["none", "short", "long"]
    assert passed >= 89
    stood = await value(sandbox, source.replace("90", "900000"), now=1_000)
    assert stood == [["none", "short", "every", "every", "long"], "1970-01-01T00:15:01.000Z", 900_000]


async def test_a_time_limit_in_code_that_is_run_again_never_beats_the_host(
    sandbox: JavaScriptSandbox,
) -> None:
    source = "await Promise.race([tools.ask('answer'), new Promise((done) => setTimeout(done, 1, 'late'))])"
    assert await value(sandbox, source, now=0) == "answer"


async def test_what_follows_from_an_answer_runs_before_the_next_one_comes(sandbox: JavaScriptSandbox) -> None:
    # Given a host that has both answers at once, in the order that it is told
    source = """
const seen = [];
const steps = async (name) => { await tools.ask(name); for (let n = 0; n < 5; n++) { seen.push(name + n); await null } };
await Promise.all([steps('a'), steps('b')]);
seen.join(' ')
"""
    for order in ("ab", "ba"):
        both, turns = asyncio.Barrier(2), {name: asyncio.Event() for name in order}
        turns[order[0]].set()

        async def answer(
            args: Sequence[Any],
            kwargs: Mapping[str, Any],
            both: asyncio.Barrier = both,
            order: str = order,
            turns: dict[str, asyncio.Event] = turns,
        ) -> None:
            await both.wait()
            await turns[args[0]].wait()
            turns[order[1]].set()

        outcome = await sandbox.run(job(source, now=0, seed="s"), Asked(answer))
        first, second = order
        expected = [f"{name}{n}" for name in (first, second) for n in range(5)]
        assert outcome.value.split() == expected


async def test_with_a_seed_everything_random_is_the_same_again(sandbox: JavaScriptSandbox) -> None:
    source = "[crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(4))], Math.random(), performance.now()]"
    one, again, other = [await value(sandbox, source, now=5, seed=seed) for seed in ("a", "a", "b")]
    assert one == again
    assert all(left != right for left, right in zip(one[:3], other[:3], strict=True))
    assert await value(sandbox, source) != await value(sandbox, source)


# --- what is there


async def test_the_console_says_everything_in_words(sandbox: JavaScriptSandbox) -> None:
    source = """
console.log('a', 1, null, undefined, {b: [1]}, [2], new Map([[1, 2]]), new Set([3]), 4n, /x/g, () => 1, Symbol('s'));
console.warn(new TypeError('t').message, new Error('e'));
const round = {}; round.round = round; console.info(round);
console.assert(1 === 2, 'not so');
console.log('\\ud83d', '😀'.repeat(40000).length);
"""
    outcome = await ran(sandbox, source)
    lines = outcome.stdout.splitlines()
    assert lines[0] == (
        'a 1 null undefined {"b":[1]} [2] Map [[1,2]] Set [3] 4n /x/g [Function: anonymous] Symbol(s)'
    )
    assert lines[1:] == ["[object Object]", "\N{REPLACEMENT CHARACTER} 80000"]
    assert outcome.stderr.startswith("t Error: e\n    at main:3:")
    assert "Assertion failed: not so" in outcome.stderr


async def test_a_long_line_is_cut_at_its_limit_and_counted(sandbox: JavaScriptSandbox) -> None:
    outcome = await ran(sandbox, "console.log('ä'.repeat(1000000))", limits=Limits(output=1_001))
    assert outcome.stdout == "ä" * 500
    assert outcome.dropped_bytes == 2_000_001 - 1_001


async def test_what_scripts_expect_of_a_javascript_is_there(sandbox: JavaScriptSandbox) -> None:
    source = """
const copy = structuredClone({d: new Date(5), m: new Map([[1, {a: [2]}]]), s: new Set(['x'])});
[new TextDecoder().decode(new TextEncoder().encode('ä€😀')), copy.d.getTime(), copy.m.get(1).a[0], copy.s.has('x'),
 atob(btoa('hi')), [3, 1, 2].toSorted(), Object.groupBy([1, 2], (n) => n % 2 ? 'odd' : 'even').odd,
 'a-b'.replaceAll('-', '+'), Array.fromAsync !== undefined, typeof queueMicrotask]
"""
    found = await value(sandbox, source)
    assert found == ["ä€😀", 5, 2, True, "hi", [1, 2, 3], [1], "a+b", True, "function"]


async def test_files_are_read_written_listed_and_taken_away(sandbox: JavaScriptSandbox) -> None:
    source = """
files.append('/a.txt', ' more'); files.write('new/deep/b.bin', new Uint8Array([0, 255]));
files.makeFolder('/empty'); files.remove('/gone'); files.remove('/single.txt'); files.write('/kept.txt', 'same');
[files.list('/'), files.exists('/nope'), files.stat('/a.txt'), files.stat('/new').kind, [...files.readBytes('/new/deep/b.bin')], files.list('new')]
"""
    outcome = await ran(
        sandbox,
        source,
        files={
            "/a.txt": b"one",
            "/gone/c": b"1",
            "/gone/d/e": b"2",
            "/single.txt": b"3",
            "/kept.txt": b"same",
        },
    )
    assert outcome.value == [
        ["a.txt", "empty", "kept.txt", "new"],
        False,
        {"kind": "file", "size": 8},
        "folder",
        [0, 255],
        ["deep"],
    ]
    assert outcome.changed == {"/a.txt": b"one more", "/new/deep/b.bin": b"\x00\xff"}
    assert outcome.deleted == ("/gone/c", "/gone/d/e", "/single.txt")
    assert outcome.folders == {"/empty", "/new", "/new/deep"}


async def test_files_as_node_has_them(sandbox: JavaScriptSandbox) -> None:
    source = """
import fs, { existsSync } from 'fs';
import { readFile, writeFile } from 'fs/promises';
import * as path from 'node:path';
const codes = [];
for (const [what, ...given] of [['readFileSync', '/none'], ['readFileSync', '/d'], ['unlinkSync', '/d'], ['mkdirSync', '/d'], ['rmdirSync', '/d'], ['readdirSync', '/f']])
  try { fs[what](...given) } catch (error) { codes.push(error.code) }
await writeFile('/d/g', await readFile('/f', 'utf8') + '!');
fs.renameSync('/d/g', '/d/h'); fs.copyFileSync('/d/h', '/d/i'); fs.rmSync('/none', { force: true });
const kinds = fs.readdirSync('/d', { withFileTypes: true }).map((one) => [one.name, one.isFile()]);
export default [codes, existsSync('/d/g'), kinds, fs.statSync('/d').isDirectory(), path.resolve('/a', '../b', 'c.tar.gz'),
  path.extname('c.tar.gz'), path.basename('/x/c.ts', '.ts'), path.dirname('/x/y/'), path.relative('/a/b', '/a/c/d'), path.parse('/q/w.e').name]
"""
    codes = ["ENOENT", "EISDIR", "EISDIR", "EEXIST", "ENOTEMPTY", "ENOTDIR"]
    paths = ["/b/c.tar.gz", ".gz", "c", "/x", "../c/d", "w"]
    found = await value(sandbox, source, files={"/f": b"text", "/d/x": b""})
    assert found == [codes, False, [["h", True], ["i", True], ["x", True]], True, *paths]


@pytest.mark.parametrize(
    ("source", "limit"),
    [
        ("files.write('/f', 'x'.repeat(11))", "file_bytes"),
        ("for (let i = 0; i < 4; i++) files.write('/f' + i, 'x')", "files"),
        ("files.makeFolder('/a/b/c/d')", "files"),
        ("for (let i = 0; i < 3; i++) files.write('/f' + i, '0123456789')", "tree_bytes"),
        ("await tools.ask('0123456789')", "file_bytes"),
    ],
)
async def test_what_goes_over_a_limit_is_told_where_it_happens(
    sandbox: JavaScriptSandbox, source: str, limit: str
) -> None:
    limits = Limits(files=3, file_bytes=10, tree_bytes=25)
    outcome = await ran(sandbox, source, limits=limits)
    assert outcome.status == "failed"
    assert f"({limit})" in (outcome.error or "")
    caught = await ran(sandbox, f"try {{ {source} }} catch {{}} 1", limits=limits)
    assert (caught.status, caught.value) == ("done", 1)


async def test_what_is_thrown_away_again_does_not_count(sandbox: JavaScriptSandbox) -> None:
    source = (
        "for (let i = 0; i < 9; i++) { files.write('/f', 'x'); files.remove('/f') } files.write('/g', 'y')"
    )
    outcome = await ran(sandbox, source, limits=Limits(files=1, file_bytes=9, tree_bytes=9))
    assert (outcome.status, outcome.changed) == ("done", {"/g": b"y"})


async def test_only_what_was_asked_for_comes_back(sandbox: JavaScriptSandbox) -> None:
    source = "files.write('/out/a', '2'); files.write('/b', '2'); files.remove('/c')"
    outcome = await ran(sandbox, source, files={"/out/a": b"1", "/c": b"1"}, collect=("/out",))
    assert (outcome.changed, outcome.deleted, outcome.folders) == ({"/out/a": b"2"}, (), {"/out"})


# --- what is refused


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"names": {"not a name": ""}}, "'not a name'"),
        ({"names": {"tools.__proto__": ""}}, "'tools.__proto__'"),
        ({"names": {"Math.random": ""}}, "Math is the name of something else"),
        ({"names": {"tools": "", "tools.ask": ""}}, "tools.ask cannot be both"),
        ({"modules": {"../up.js": ""}}, "'../up.js'"),
        ({"modules": {"/absolute.js": ""}}, "'/absolute.js'"),
        ({"path": "../up.js"}, "'../up.js'"),
        ({"modules": {"a.js": "x" * 1_000_001}}, "a.js has 1,000,001 characters"),
        ({"input": "x" * 2_000_000}, "(file_bytes)"),
        ({"cwd": "/nowhere"}, "no folder /nowhere"),
    ],
)
async def test_a_job_that_makes_no_sense_is_refused_in_words(
    sandbox: JavaScriptSandbox, options: dict[str, Any], words: str
) -> None:
    outcome = await ran(sandbox, "console.log('ran')", **options)
    assert (outcome.status, outcome.stdout) == ("failed", "")
    assert words in (outcome.error or "")


async def test_a_missing_package_is_told_with_its_install_line(
    sandbox: JavaScriptSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "wasmtime" else find(name, *rest)
    )
    told = await sandbox.check()
    assert told is not None
    assert "wasmtime" in told
    assert "pip install 'everthink[sandbox]'" in told
    outcome = await ran(sandbox, "1")
    assert (outcome.status, outcome.error) == ("failed", told)


# --- children


async def test_a_child_that_is_killed_while_it_works_is_a_crash_and_the_next_one_runs(
    sandbox: JavaScriptSandbox,
) -> None:
    async def kill(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        os.kill(sandbox.pids[0], signal.SIGKILL)
        await asyncio.Event().wait()

    outcome = await sandbox.run(job("files.write('/lost', 'x'); await tools.ask()"), Asked(kill))
    assert (outcome.status, outcome.changed) == ("crashed", {})
    assert "SIGKILL" in (outcome.error or "")
    assert await value(sandbox, "'alive'") == "alive"


async def test_a_cancelled_run_has_ended_its_child_when_it_raises(sandbox: JavaScriptSandbox) -> None:
    asked = asyncio.Event()

    async def wait(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        asked.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(sandbox.run(job("await tools.ask()"), Asked(wait)))
    await asked.wait()
    (pid,) = sandbox.pids
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (is_gone(pid), sandbox.pids) == (True, [])


async def test_every_step_of_the_lock_holds_here(sandbox: JavaScriptSandbox) -> None:
    held = await sandbox.held()
    assert held["seccomp"] == held["no new privileges"] == held["limits"] == held["one thread"] == ""


def test_a_guest_loads_nothing_of_ours_but_what_stands_beside_it() -> None:
    script = (
        "import sys, types\n"
        "package = types.ModuleType('sandboxed')\n"
        "package.__path__ = [sys.argv[1]]\n"
        "sys.modules['sandboxed'] = package\n"
        "sys.path.append(sys.argv[2])\n"
        "import sandboxed.javascript_guest, quickjs_rs\n"
        "print(*sys.modules)\n"
    )
    found = importlib.util.find_spec("quickjs_rs")
    assert found is not None
    assert found.origin is not None
    libraries = str(Path(found.origin).parents[1])
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(PACKAGE / "sandbox"), libraries],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.partition(".")[0] for name in ran.stdout.split()}
    assert loaded - set(sys.stdlib_module_names) - {"__main__"} <= {"sandboxed", "quickjs_rs", "wasmtime"}


async def test_the_engine_is_compiled_once_and_what_was_changed_since_is_not_used(tmp_path: Path) -> None:
    # Given a folder for what is compiled
    folder = tmp_path / "cache"

    async def started() -> dict[Path, int]:
        sandbox = JavaScriptSandbox(cache=str(folder))
        assert await sandbox.check() is None
        await sandbox.aclose()
        return {path: path.stat().st_mtime_ns for path in folder.iterdir()}

    # When it is filled, it is only ours, and read by the next child
    made = await started()
    assert len(made) == 2
    assert all(path.stat().st_mode & 0o077 == 0 for path in (folder, *made))
    assert await started() == made

    # When one file is broken and another could have been written by anybody, both are made again
    broken, open_to_all = made
    broken.write_bytes(broken.read_bytes()[:-1] + b"!")
    open_to_all.chmod(0o666)
    again = await started()
    assert all(again[path] != made[path] for path in made)
    assert open_to_all.stat().st_mode & 0o077 == 0


async def test_without_a_folder_every_child_compiles() -> None:
    sandbox = JavaScriptSandbox(cache="")
    assert await sandbox.check() is None
    await sandbox.aclose()


# --- for a long time


async def test_memory_and_descriptors_are_flat_after_many_scripts() -> None:
    sandbox = JavaScriptSandbox(jobs_each=1_000_000, most=1)
    whole = job(
        "const all = await Promise.all([1, 2, 3].map((n) => tools.ask(n))); console.log(all);"
        "files.write('/made', files.read('/a') + 'more'); structuredClone(all)",
        files={"/a": b"a" * 1_000, "/d/b": b"b" * 1_000},
    )
    typed = job(
        "enum A { X = 1 }\nimport { b } from './b'; export default b + A.X",
        language="typescript",
        modules={"b.ts": "export const b: number = 1"},
    )
    spent = job("const f = () => f() + 1; f()")
    thrown = job("throw new Error('x')", style="command")
    jobs = [whole, typed, spent, thrown]
    assert (await sandbox.run(whole, NoHost())).status == "failed"  # it asks, and nobody answers
    await stays_flat(sandbox, jobs, warm=20, times=sample(120, 1_500))
    await sandbox.aclose()


# --- calls that nobody awaits


async def test_calls_that_nobody_awaits_are_finished_with_all_that_follows_from_them(
    sandbox: JavaScriptSandbox,
) -> None:
    done: list[Any] = []

    async def answer(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        await asyncio.sleep(0)
        if args[0] == "no":
            raise HostRefused("You may not.")
        done.append(args[0])

    async def ended(code: str, style: Any = "function") -> Outcome:
        done.clear()
        source = f"export default async function run() {{ {code} }}" if style == "function" else code
        return await sandbox.run(job(source, style=style), Asked(answer))

    later = "(async () => { await tools.ask(1); for (let n = 20; n--;) await null; await tools.ask(2) })();"
    for style in ("function", "snippet", "command"):
        code = f"{later} return 5" if style == "function" else later
        assert (await ended(code, style)).status == "done"
        assert done == [1, 2]

    for lost in (
        "tools.ask('no'); return 5",
        "tools.ask('no').then(() => 1); await tools.ask(1); return 5",
        "Promise.race([tools.ask('no'), tools.ask('no')]); return 5",
    ):
        told = await ended(lost)
        assert told.status == "failed"
        assert "You may not.\nNobody has awaited this: write await before the call." in (told.error or "")
    for heard in (
        "const p = tools.ask('no'); await tools.ask(1); try { await p } catch { return 5 }",
        "tools.ask('no').then(() => 1).catch(() => 2); return 5",
        "await Promise.allSettled([tools.ask('no')]); return 5",
        "await tools.ask('no').then(() => 1, () => 2); return 5",
    ):
        assert ((await ended(heard)).status, heard) == ("done", heard)
    unsure = await ended("(async () => { await tools.ask('no') })(); return 5")
    assert (unsure.value, unsure.stderr) == (5, "After it had returned: You may not.\n")


async def test_what_is_returned_is_never_a_promise_and_sets_and_maps_are_told(
    sandbox: JavaScriptSandbox,
) -> None:
    told = await ran(sandbox, "export default () => ({ deep: [tools.ask(1)] })", style="function")
    assert told.status == "failed"
    assert '"0" is a promise that nobody has awaited: put await before what makes it.' in (told.error or "")
    plain = "export default () => [new Set([1]), new Map([['a', 1]]), JSON.stringify(new Set([1]))]"
    assert (await ran(sandbox, plain, style="function")).value == [[1], {"a": 1}, "{}"]


async def test_a_timer_holds_up_the_end_of_a_program_and_not_that_of_a_function(
    sandbox: JavaScriptSandbox,
) -> None:
    sets = "setTimeout(() => console.log('late'), 20)"
    program = await ran(sandbox, sets, style="command")
    function = await ran(sandbox, f"export default () => {{ {sets}; return 1 }}", style="function")
    assert (program.stdout, function.stdout, function.value) == ("late\n", "", 1)
