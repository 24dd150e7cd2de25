"""Code works in the files of the agent's workspace."""

from __future__ import annotations

import hashlib

import pytest

from tests.codemode.support import MakeCoder

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.mark.memory_case(289, 290, 319, 492)
@pytest.mark.memory_case(495)
async def test_state_and_open_are_the_workspace(coder: MakeCoder) -> None:
    agent = await coder()
    workspace = (await agent.agent()).workspace
    await workspace.write_file("/in.json", '{"n": [1, 2]}')
    output = await agent.run(
        "import json\n"
        "from pathlib import Path\n"
        "data = json.loads(open('/in.json').read())\n"
        "with open('/out/a.txt', 'w') as f:\n"
        "    f.write('eins ')\n"
        "    f.write('zwei')\n"
        "Path('/out/deep/er').mkdir(parents=True)\n"
        "await state.write_json(path='/out/b.json', value=data)\n"
        "await state.append_file(path='/out/a.txt', content=' drei')\n"
        "[Path('/out/a.txt').read_text(), sorted(p.name for p in Path('/out').iterdir()),"
        " await state.read_json(path='/out/b.json'), (await state.stat(path='/out/a.txt'))['size']]"
    )
    assert output["result"] == ["eins zwei drei", ["a.txt", "b.json", "deep"], {"n": [1, 2]}, 14], output
    assert await workspace.read_file("/out/a.txt") == "eins zwei drei"
    assert await workspace.read_file("/out/b.json") == '{\n  "n": [\n    1,\n    2\n  ]\n}\n'


@pytest.mark.memory_case(292, 312, 314, 317)
async def test_every_function_of_state_does_what_it_says(coder: MakeCoder) -> None:
    agent = await coder()
    output = await agent.run(
        "await state.write_file(path='/a/one.md', content='x = 1\\ny = 2\\n')\n"
        "await state.cp(source='/a', destination='/b', recursive=True)\n"
        "await state.mv(source='/b/one.md', destination='/b/two.md')\n"
        "r = await state.replace_in_file(path='/b/two.md', search='1', replacement='$&')\n"
        "await state.symlink(target='/a/one.md', link_path='/link')\n"
        "await state.mkdir(path='/c/d', recursive=True)\n"
        "await state.rm(path='/c', recursive=True)\n"
        "[r, await state.glob(pattern='**/*.md'), await state.read_file(path='/link'),"
        " await state.exists(path='/c'), await state.readdir_with_file_types(path='/'),"
        " [m['matches'][0]['line'] for m in await state.search_files(query='y =')],"
        " (await state.diff(path_a='/a/one.md', path_b='/b/two.md')).count('@@'),"
        " await state.diff_content(path='/a/one.md', new_content='x = 1\\ny = 2\\n'),"
        " await state.hash_file(path='/a/one.md', algorithm='md5'), await state.stat(path='/none')]"
    )
    assert output["result"] == [
        {"replaced": 1},
        ["/a/one.md", "/b/two.md"],
        "x = 1\ny = 2\n",
        False,
        [
            {"name": "a", "type": "directory"},
            {"name": "b", "type": "directory"},
            {"name": "link", "type": "symlink"},
        ],
        [2, 2],
        2,
        "",
        hashlib.md5(b"x = 1\ny = 2\n").hexdigest(),
        None,
    ], output
    assert await (await agent.agent()).workspace.read_file("/b/two.md") == "x = $&\ny = 2\n"


async def test_what_is_not_there_is_an_error_of_its_kind(coder: MakeCoder) -> None:
    agent = await coder()
    output = await agent.run(
        "said = []\n"
        "try:\n    open('/none').read()\nexcept FileNotFoundError as e:\n    said.append(str(e))\n"
        "try:\n    await state.read_file(path='/none')\nexcept RuntimeError as e:\n    said.append(str(e))\n"
        "open('/dir/x', 'w').write('1')\n"
        "try:\n    open('/dir')\nexcept IsADirectoryError as e:\n    said.append('folder')\n"
        "try:\n    open('/dir/x/y', 'w')\nexcept NotADirectoryError as e:\n    said.append('no folder')\n"
        "said"
    )
    assert output["status"] == "completed", output
    assert output["result"] == [
        "No such file or directory: '/none'",
        "ENOENT: There is no file /none.",
        "folder",
        "no folder",
    ]


async def test_a_file_that_code_writes_says_which_call_wrote_it(coder: MakeCoder) -> None:
    agent = await coder()
    output = await agent.run("await state.write_file(path='/a', content='x')")
    [change] = await (await agent.agent()).workspace.changes()
    assert change.call_id == f"{output['executionId']}/1"


async def test_without_state_there_is_none(coder: MakeCoder) -> None:
    agent = await coder(options={"state": False})
    output = await agent.run("await state.readdir()")
    assert "`state` used when not defined" in output["error"]
    assert (await agent.run("open('/kept', 'w').write('x')"))["status"] == "completed"
    assert not await (await agent.agent()).workspace.exists("/kept")
