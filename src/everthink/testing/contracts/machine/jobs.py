"""A job runs as the process that it would be anywhere: programs, functions, snippets."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ....sandbox.port import HostRefused, Job
from ..sandbox.case import Asked, bash
from .case import MachineCase, python

__all__ = ["JobsContract"]

PROGRAM = """
import argparse, json, os, sys
parser = argparse.ArgumentParser(prog="report")
parser.add_argument("name")
parser.add_argument("--times", type=int, default=1)
asked = parser.parse_args()
if __name__ == "__main__":
    from beside import greeting
    given = json.load(sys.stdin)
    print(greeting, asked.name, asked.times, given["n"], os.environ["WHERE"], os.path.basename(os.getcwd()))
    sys.exit(3)
"""


class JobsContract(MachineCase):
    """Styles, input, output and calls."""

    async def test_a_machine_that_can_run_here_says_so(self) -> None:
        async with self.opened() as sandbox:
            assert await sandbox.check() is None

    async def test_a_script_says_what_it_says_and_ends_with_its_own_code(self) -> None:
        outcome = await self.run("echo out; echo err >&2; exit 3")
        assert (outcome.status, outcome.error, outcome.exit_code) == ("done", None, 3)
        assert (outcome.stdout, outcome.stderr) == ("out\n", "err\n")

    async def test_a_script_has_its_arguments_its_variables_its_folder_and_its_input(self) -> None:
        outcome = await self.run(
            'echo "$#:$1:$2"; echo "$GREETING"; basename "$PWD"; read -r first; echo "[$first]"; cat;'
            " echo $0",
            args=("one", "two words; $(echo no)"),
            env={"GREETING": "hello 'you'"},
            cwd="/notes/today",
            folders=frozenset({"/notes/today"}),
            stdin=b"line 1\nline 2\n",
            path="the-script",
        )
        said = ["2:one:two words; $(echo no)", "hello 'you'", "today", "[line 1]", "line 2", "the-script"]
        assert outcome.stdout.splitlines() == said

    async def test_a_script_of_any_length_is_run(self) -> None:
        outcome = await self.run("#" * 300_000 + "\necho ran $1", args=("whole",))
        assert outcome.stdout == "ran whole\n"

    async def test_a_program_has_arguments_input_variables_and_modules_beside_it(self) -> None:
        outcome = await self.python(
            PROGRAM,
            style="command",
            path="/tools/report.py",
            files={"/tools/report.py": PROGRAM.encode(), "/tools/beside.py": b"greeting = 'hello'"},
            args=("Ada", "--times", "2"),
            stdin=b'{"n": 7}',
            env={"WHERE": "here"},
            cwd="/tools",
        )
        assert outcome.stdout == "hello Ada 2 7 here tools\n", outcome
        assert (outcome.status, outcome.exit_code, outcome.changed) == ("done", 3, {})

    async def test_what_a_program_says_of_wrong_arguments_is_for_the_model_to_read(self) -> None:
        outcome = await self.python(PROGRAM, style="command", args=("Ada", "--times", "x"))
        assert (outcome.status, outcome.exit_code) == ("done", 2)
        assert "invalid int value" in outcome.stderr

    async def test_a_program_that_breaks_ends_with_1_and_its_traceback(self) -> None:
        outcome = await self.python("def f():\n    return 1 // 0\nf()", style="command", path="/x.py")
        assert (outcome.status, outcome.exit_code, outcome.error) == ("done", 1, None)
        assert outcome.stderr.endswith("ZeroDivisionError: integer division or modulo by zero\n")
        assert "return 1 // 0" in outcome.stderr
        assert "runner" not in outcome.stderr

    async def test_a_function_gets_its_input_and_returns_its_value(self) -> None:
        for source in (
            "def run(input):\n    return {'twice': input['n'] * 2}",
            "async def run(input, ctx):\n    return {'twice': input['n'] * 2}",
        ):
            outcome = await self.python(source, style="function", input={"n": 21})
            assert (outcome.status, outcome.value) == ("done", {"twice": 42})

    async def test_a_function_that_breaks_fails_with_its_words(self) -> None:
        outcome = await self.python("def run(input):\n    raise ValueError('no such row')", style="function")
        assert (outcome.status, outcome.error) == ("failed", "ValueError: no such row")
        outcome = await self.python("x = 1", style="function")
        assert "no function `run`" in (outcome.error or "")
        outcome = await self.python("def run(input):\n    return {1, 2}", style="function")
        assert "set, which is no JSON" in (outcome.error or "")

    async def test_the_value_of_a_snippet_is_its_last_line(self) -> None:
        outcome = await self.python("x = input + 1\nprint('seen')\n[x, x * 2]", input=20)
        assert (outcome.value, outcome.stdout) == ([21, 42], "seen\n")

    async def test_a_snippet_that_breaks_fails_and_keeps_what_it_wrote(self) -> None:
        outcome = await self.python("open('made', 'w').write('x')\nmissing")
        assert (outcome.status, outcome.exit_code) == ("failed", 1)
        assert outcome.error == "NameError: name 'missing' is not defined"
        assert outcome.changed == {"/made": b"x"}

    async def test_an_exit_in_python_is_its_exit_code(self) -> None:
        outcome = await self.python("import sys\nsys.exit(3)")
        assert (outcome.status, outcome.exit_code) == ("done", 3)

    async def test_functions_of_the_host_are_modules(self) -> None:
        host = Asked(_doubled)
        outcome = await self.python(
            "import tools\nfrom shop.orders import refund\n[tools.add(1, b=2), refund(3)]",
            host,
            names={"tools.add": "def add(a, b): ...", "shop.orders.refund": "def refund(n): ..."},
        )
        assert outcome.value == [[2, "tools.add"], [6, "shop.orders.refund"]]
        assert host.calls == [("tools.add", [1], {"b": 2}), ("shop.orders.refund", [3], {})]
        assert outcome.calls == 2

    async def test_functions_of_the_host_may_be_awaited_together(self) -> None:
        # Given a host that answers when three have asked
        all_three = asyncio.Barrier(3)

        async def meet(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            await all_three.wait()
            return args[0]

        outcome = await self.python(
            "import asyncio, tools\n"
            "async def run(input):\n"
            "    return await asyncio.gather(*(tools.wait(n) for n in range(3)))",
            Asked(meet),
            style="function",
            names={"tools.wait": "async def wait(n): ..."},
        )
        assert outcome.value == [0, 1, 2]

    async def test_a_snippet_may_await_at_its_top(self) -> None:
        source = "import tools\nfirst = await tools.ask(1)\nprint(first)\n[first, await tools.ask(2)]"
        names = {"tools.ask": "async def ask(value): ..."}
        outcome = await self.python(source, Asked(_yes), names=names)
        assert (outcome.status, outcome.value, outcome.stdout) == ("done", ["yes", "yes"], "yes\n"), outcome
        outcome = await self.python("import tools\nawait tools.ask(1)\nmissing", Asked(), names=names)
        assert outcome.error == "NameError: name 'missing' is not defined"
        assert 'File "main", line 3' in outcome.stderr

    async def test_a_refusal_is_an_exception_that_python_may_catch(self) -> None:
        async def refuse(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            raise HostRefused("not without a person")

        outcome = await self.python(
            "try:\n    tools.pay()\nexcept RuntimeError as error:\n    words = str(error)\nwords",
            Asked(refuse),
            names={"tools.pay": ""},
        )
        assert outcome.value == "not without a person"

    async def test_threads_and_processes_are_there_and_are_awaited(self) -> None:
        outcome = await self.python(
            "import multiprocessing, subprocess, threading\n"
            "threading.Thread(target=lambda: print('a thread')).start()\n"
            "process = multiprocessing.get_context('fork').Process(target=print, args=('a fork',))\n"
            "process.start(); process.join()\n"
            "print(subprocess.run(['echo', 'a program'], capture_output=True, text=True).stdout, end='')",
            style="command",
        )
        assert sorted(outcome.stdout.splitlines()) == ["a fork", "a program", "a thread"], outcome

    async def test_jobs_that_run_at_once_do_not_meet(self) -> None:
        async with self.opened() as sandbox:
            jobs = [bash(f"echo {number} > n; cp n $TMPDIR/n; cat n $TMPDIR/n; ls") for number in range(4)]
            outcomes = await asyncio.gather(*(sandbox.run(job, Asked()) for job in jobs))
        assert [outcome.stdout for outcome in outcomes] == [f"{n}\n{n}\nn\n" for n in range(4)]

    async def test_what_does_not_fit_a_machine_is_refused_in_words(self) -> None:
        async with self.opened() as sandbox:
            for job, words in (
                (Job(language="javascript", source="1"), "javascript"),
                (python("1", now=5), "(now)"),
                (python("1", names={"os; import x": ""}), "'os; import x'"),
                (bash("1", style="function"), "commands"),
                (bash("echo here", cwd="/nowhere"), "/nowhere"),
                (bash("1", path="-c"), "'-c'"),
            ):
                outcome = await sandbox.run(job, Asked())
                assert (outcome.status, outcome.stdout) == ("failed", "")
                assert words in (outcome.error or "")

    async def test_a_closed_sandbox_runs_nothing_and_says_so(self) -> None:
        async with self.opened() as sandbox:
            pass
        outcome = await sandbox.run(bash("echo hi"), Asked())
        assert (outcome.status, outcome.stdout) == ("failed", "")
        assert "closed" in (outcome.error or "")


async def _doubled(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return [args[0] * 2, "tools.add" if kwargs else "shop.orders.refund"]


async def _yes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return "yes"
