"""What a developer writes that cannot be meant is told where it is written, in words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from everthink import Think
from everthink.errors import InvalidSettings, WorkspaceError
from everthink.testing.contracts.files.case import refused
from everthink.workspace import (
    DiskFiles,
    MemoryFiles,
    MountedFiles,
    ParentWorkspace,
    Put,
    ReadOnly,
    Workspace,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Workspace(limits=5), "limits is 5, an int"),
        (lambda: Workspace(objects="s3://bucket"), "a store of obstore"),
        (lambda: Workspace(spill_from=-3), "spill_from is -3"),
        (lambda: Workspace(on_change="x"), "It takes a function"),
        (lambda: Workspace("/srv"), "a place for files"),
        (lambda: Workspace(Workspace(MemoryFiles())), "not a Workspace"),
        (lambda: MemoryFiles(["a"]), "a dict of paths and texts or bytes"),
        (lambda: MemoryFiles({"/a": 1}), "a dict of paths and texts or bytes"),
        (lambda: MountedFiles({"/": Workspace()}), "a place for files"),
        (lambda: MountedFiles({"/a": MemoryFiles()}), "needs something at '/'"),
        (lambda: Workspace("/srv"), "Write DiskFiles('/srv')."),
        (lambda: Workspace(MemoryFiles), "Write MemoryFiles(…)."),
        (lambda: MountedFiles({"/": MemoryFiles(), "/srv": "/srv"}), "At '/srv': write DiskFiles('/srv')."),
        (lambda: ReadOnly("skills"), "Write DiskFiles('skills')."),
        (lambda: DiskFiles(None), "root is None, a NoneType. It takes the path of a directory."),
        (lambda: DiskFiles(""), "It takes the path of a directory."),
        (lambda: DiskFiles(__file__), "this is a file. Name a directory"),
        (lambda: DiskFiles("x", most_bytes="1 MB"), "most_bytes is '1 MB', a str"),
    ],
)
def test_what_no_workspace_can_be_made_of_is_told(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidSettings) as told:
        make()
    assert words in str(told.value)


class Half:
    """Files of somewhere else, as far as they go."""

    def stat(self, path: str) -> None: ...

    def read_file_bytes(self, path: str) -> None: ...


@pytest.mark.parametrize(
    ("workspace", "words"),
    [
        ("/srv/shared", "Write Workspace(DiskFiles('/srv/shared'))."),
        (MemoryFiles(), "Write Workspace(MemoryFiles(…))."),
        (ParentWorkspace, "Write ParentWorkspace()."),
        (None, "include_workspace_tools = False."),
        (Half(), "It lacks write_file, write_file_bytes, read_dir, glob, mkdir, rm."),
    ],
)
def test_what_is_nearly_the_workspace_of_a_class_is_told_with_what_to_write(
    workspace: Any, words: str
) -> None:
    with pytest.raises(InvalidSettings) as told:
        type("Assistant", (Think,), {"workspace": workspace})
    assert str(told.value).endswith(words)


async def texts() -> AsyncIterator[Any]:
    yield "text"


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda files: files.apply(["x"]), "takes edits, such as Put(…), not a str"),
        (lambda files: files.apply([Put("/a", "text")]), "is written as bytes, not as str"),
        (lambda files: files.write_file_stream("/a", [b"x"]), "is written as bytes, not as list"),
        (lambda files: files.write_file_stream("/a", texts()), "gave a str"),
        (lambda files: files.restore("x"), "seq is 'x', a str"),
        (lambda files: files.restore(-1), "seq is -1"),
        (lambda files: files.read_file_bytes("/a", start=-5), "start is -5"),
        (lambda files: files.write_file(None, "x"), "A path is a text, not NoneType"),
        (lambda files: files.glob(None), "A path is a text, not NoneType"),
    ],
)
async def test_what_no_method_can_do_is_told_and_changes_nothing(
    use: Callable[[Workspace], Any], words: str
) -> None:
    files = Workspace(MemoryFiles({"/kept": "kept"}))
    with pytest.raises((InvalidSettings, WorkspaceError)) as told:
        await use(files)
    assert words in str(told.value)
    assert [entry.path for entry in await files.glob("/**")] == ["/kept"]


async def test_one_edit_is_as_good_as_a_list_of_one() -> None:
    files = Workspace(MemoryFiles())
    await files.apply(Put("/a", b"one"))
    assert await files.read_file("/a") == "one"


async def test_bytes_are_not_added_to_a_text() -> None:
    files = Workspace(MemoryFiles({"/kept": "kept"}))
    with pytest.raises(TypeError, match=r"append_file\(\) takes a str, not bytes"):
        await files.append_file("/kept", b"x")  # type: ignore[arg-type]
    assert await files.read_file("/kept") == "kept"


async def test_a_pattern_that_is_nested_too_deep_to_be_read_is_none() -> None:
    files = Workspace(MemoryFiles({"/a": "a"}))
    with refused("EINVAL"):
        await files.grep("(?:" * 330)
