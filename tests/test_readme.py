"""The pages are programs: every Python block of README.md and docs/ runs.

The blocks of a page are one program, in order; a block after the comment `<!-- skip -->` is left out. Each
block stands in the program at the lines it has on the page, so a traceback points into the page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 60
FENCE = re.compile(r"^(\s*)(`{3,})\s*([\w+-]*)")
SKIP = "<!-- skip -->"

# A page may await at its top level, as the snippets of a tutorial do.
RUN = """
import ast, asyncio, inspect, linecache, sys
page, source = sys.argv[1], open(sys.argv[2], encoding="utf-8").read()
linecache.cache[page] = (len(source), None, source.splitlines(True), page)
code = compile(source, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
running = eval(code, sys.modules["__main__"].__dict__)
if inspect.iscoroutine(running):
    asyncio.run(running)
"""


@dataclass(frozen=True)
class Code:
    """A Python block: the number of its first line, and its lines."""

    first: int
    lines: list[str]


def blocks(text: str) -> list[Code]:
    """The Python blocks of a page that are meant to run."""
    found: list[Code] = []
    lines = text.splitlines()
    number, before = 0, ""
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if fence is None:
            before = lines[number].strip() or before
            number += 1
            continue
        first = number + 1
        end = first
        while end < len(lines) and lines[end].strip() != fence[2]:
            end += 1
        if fence[3] in ("python", "py") and before != SKIP:
            code = textwrap.dedent("\n".join(lines[first:end])).split("\n")
            found.append(Code(first + 1, code))
        number, before = end + 1, ""
    return found


def program(found: list[Code]) -> str:
    """The blocks as one program, each at its own lines."""
    lines: list[str] = []
    for code in found:
        lines += [""] * (code.first - 1 - len(lines))
        lines += code.lines
    return "\n".join(lines) + "\n"


def run(page: str, text: str, directory: Path) -> str | None:
    """Run a page in an empty directory. What went wrong, and in which block, or `None`."""
    found = blocks(text)
    source = directory / "page.py"
    source.write_text(program(found), encoding="utf-8")
    place = directory / "cwd"
    place.mkdir()
    # Whoever reads the pages has no keys yet.
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    command = [sys.executable, "-X", "utf8", "-c", RUN, page, str(source)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=place, env=environment, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as slow:
        said = slow.stdout.decode() if isinstance(slow.stdout, bytes) else slow.stdout
        return f"{page} did not end within {TIMEOUT} seconds. It had printed:\n{said or 'nothing'}"
    if done.returncode == 0:
        return None
    where = [int(line) for line in re.findall(rf'File "{re.escape(page)}", line (\d+)', done.stderr)]
    guilty = [code for code in found for line in where if code.first <= line < code.first + len(code.lines)]
    block = f"line {guilty[-1].first}:\n\n" + "\n".join(guilty[-1].lines) if guilty else "an unknown line"
    return f"{page}: the block at {block}\n\n{done.stderr}"


def pages() -> list[str]:
    """The pages that have something to run. Those of the reference are signatures."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [page for page in found if page.parent.name != "reference"]
    return [p.relative_to(ROOT).as_posix() for p in found if p.exists() and blocks(p.read_text("utf-8"))]


@pytest.mark.parametrize("page", pages())
def test_the_page_runs(page: str, tmp_path: Path) -> None:
    wrong = run(page, (ROOT / page).read_text("utf-8"), tmp_path)
    if wrong is not None:
        pytest.fail(wrong, pytrace=False)


# --- the reader of pages itself

PAGE = """\
# A page

```python
x = 1
```

Text with `code` and

   ```python
   def double(n):
       return n * 2
   ```

```sh
rm -rf /
```

<!-- skip -->

```python
this is no Python
```

````text
```python
neither = is this
```
````

```python
assert double(x) == 2, "doubled"
```
"""


def test_the_blocks_of_a_page_are_one_program_at_their_own_lines() -> None:
    assert [(code.first, code.lines) for code in blocks(PAGE)] == [
        (4, ["x = 1"]),
        (10, ["def double(n):", "    return n * 2"]),
        (31, ['assert double(x) == 2, "doubled"']),
    ]
    lines = program(blocks(PAGE)).splitlines()
    assert (lines[3], lines[9], lines[30]) == ("x = 1", "def double(n):", 'assert double(x) == 2, "doubled"')
    assert len(lines) == 31


def test_a_page_that_runs_is_right(tmp_path: Path) -> None:
    assert run("page.md", PAGE, tmp_path) is None


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("assert double(x) == 3", "AssertionError"),
        ("double(", "SyntaxError"),
        ("import sys; sys.exit('gave up')", "gave up"),
        ("await double(x)", "TypeError"),
    ],
)
def test_a_page_that_fails_names_the_block(tmp_path: Path, broken: str, said: str) -> None:
    text = PAGE.replace('assert double(x) == 2, "doubled"', broken)
    wrong = run("page.md", text, tmp_path)
    assert wrong is not None
    assert said in wrong
    if said != "gave up":
        assert f"the block at line 31:\n\n{broken}" in wrong


def test_a_page_may_await_at_the_top_and_may_run_its_own_loop(tmp_path: Path) -> None:
    awaiting = "```python\nimport asyncio\nawait asyncio.sleep(0)\nprint('awaited')\n```\n"
    assert run("page.md", awaiting, tmp_path) is None
    own = "```python\nimport asyncio\nasync def main(): ...\nasyncio.run(main())\n```\n"
    (tmp_path / "own").mkdir()
    assert run("page.md", own, tmp_path / "own") is None
