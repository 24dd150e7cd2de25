"""Code asks for little and would have this process make much of it: it is refused before that is made."""

from __future__ import annotations

import tracemalloc

import pytest

from everthink.sandbox.port import Limits
from tests.codemode.support import MakeCoder

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

MOST = 96 * 1024 * 1024
"""More than the server takes for any of these; each would be gigabytes."""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("await state.replace_in_file(path='/a', search='a', replacement='b' * 20_000)", "EFBIG"),
        ("await state.write_json(path='/j', value=[1, 2, 3], spaces=1_000_000_000)", "spaces"),
        ("await state.search_files(query='a', context_before=1_000_000_000)", "context"),
        ("await state.search_files(query='a', max_matches=1_000_000_000)", "max_matches"),
    ],
)
async def test_a_few_bytes_of_code_do_not_become_gigabytes_here(
    coder: MakeCoder, code: str, words: str
) -> None:
    agent = await coder()
    workspace = (await agent.agent()).workspace
    await workspace.write_file("/a", "a" * 900_000)
    await agent.run("1")  # what is loaded once is loaded
    tracemalloc.start()
    try:
        output = await agent.run(code)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert output["status"] == "error"
    assert words in output["error"], output
    assert peak < MOST, peak
    assert await workspace.read_file("/a") == "a" * 900_000


async def test_lines_around_what_was_found_are_bounded_together(coder: MakeCoder) -> None:
    agent = await coder()
    workspace = (await agent.agent()).workspace
    await workspace.write_file("/a", "a\n" * 450_000)
    hits = await workspace.grep("a", context=10**9, limit=10**9)
    assert hits.is_cut
    assert max(len(one.before) + len(one.after) for one in hits.found) <= 200
    assert sum(len(line) for one in hits.found for line in (*one.before, *one.after)) <= 4_100_000
    await workspace.write_file("/a", f"{'b' * 500_000}\na\n")
    [hit] = (await workspace.grep("a", context=1)).found
    assert len(hit.before[0]) == 2_000


@pytest.mark.parametrize(
    "code",
    [
        "await state.read_file(path='/big')",
        "await state.read_file_bytes(path='/big')",
        "await state.read_json(path='/big')",
        "await state.hash_file(path='/big')",
        "await state.append_file(path='/big', content='x')",
        "await state.replace_in_file(path='/big', search='x', replacement='y')",
        "await state.diff(path_a='/small', path_b='/big')",
        "await state.diff_content(path='/big', new_content='x')",
        "open('/big').read(1)",
        "with open('/big', 'a') as file:\n    file.write('x')\n",
    ],
)
async def test_a_long_file_is_refused_before_it_is_read(coder: MakeCoder, code: str) -> None:
    agent = await coder()
    workspace = (await agent.agent()).workspace
    await workspace.write_file("/small", "x")
    await workspace.write_file("/big", "x" * (8 * 1024 * 1024 + 1))
    output = await agent.run(code)
    assert output["status"] == "error"
    assert "/big has 8,388,609 bytes" in output["error"], output
    assert (await workspace.stat("/big")).size == 8 * 1024 * 1024 + 1


async def test_files_that_are_opened_too_often_end_code_with_words(coder: MakeCoder) -> None:
    agent = await coder(options={"limits": Limits(calls=20)})
    output = await agent.run(
        "for i in range(30):\n    with open(f'/{i}', 'w') as file:\n        file.write('x')\n"
    )
    assert output["status"] == "error"
    assert "more than 20 times (calls)" in output["error"], output
