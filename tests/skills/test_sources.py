"""What every source promises, whatever is behind it."""

from __future__ import annotations

import base64
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from everthink import skills
from everthink.skills import frontmatter
from everthink.skills.port import SkillSource
from everthink.testing import ManualClock
from everthink.workspace import MemoryFiles, Workspace

from .build import BYTES, FOUR, text, write
from .sites import Site, tarred, zipped

pytestmark = pytest.mark.anyio

FILES: dict[str, str | bytes] = {
    "alpha/SKILL.md": text("alpha", "About alpha.", "Alpha says so.\n", license="MIT"),
    **{f"alpha/{path}": content for path, content in FOUR.items()},
    "beta/SKILL.md": text("beta", "About beta.", "Beta.\n"),
}
UNSAFE = [
    "../beta/SKILL.md",
    "/etc/passwd",
    "a/../LICENSE.txt",
    "./LICENSE.txt",
    "",
    "a//b",
    "references/../LICENSE.txt",
    "x\0y",
]
Made = tuple[SkillSource, Callable[[str], Awaitable[None]]]
"""A source, and a function that gives the body of `alpha` other words."""


async def of_directory(tmp_path: Path) -> Made:
    async def change(body: str) -> None:
        write(tmp_path, {"alpha/SKILL.md": text("alpha", "About alpha.", body, license="MIT")})

    write(tmp_path, FILES)
    return skills.from_directory(tmp_path, refresh_interval=0), change


async def of_several(tmp_path: Path) -> Made:
    async def change(body: str) -> None:
        write(tmp_path / "one", {"alpha/SKILL.md": text("alpha", "About alpha.", body, license="MIT")})

    write(tmp_path / "one", {path: data for path, data in FILES.items() if path.startswith("alpha")})
    write(tmp_path / "two", {"beta/SKILL.md": FILES["beta/SKILL.md"]})
    return skills.from_directory(tmp_path / "one", tmp_path / "two", refresh_interval=0), change


async def of_bucket(tmp_path: Path) -> Made:
    obstore = pytest.importorskip("obstore")
    from obstore.store import MemoryStore

    store = MemoryStore()

    async def change(body: str) -> None:
        obstore.put(store, "s/alpha/SKILL.md", text("alpha", "About alpha.", body, license="MIT").encode())

    for path, content in FILES.items():
        obstore.put(store, f"s/{path}", content.encode() if isinstance(content, str) else content)
    return skills.object_store(store, prefix="s", refresh_interval=0), change


async def of_workspace(tmp_path: Path) -> Made:
    class Agent:
        workspace = Workspace(MemoryFiles())

    async def change(body: str) -> None:
        await Agent.workspace.write_file(
            "/skills/alpha/SKILL.md", text("alpha", "About alpha.", body, license="MIT")
        )

    for path, content in FILES.items():
        data = content.encode() if isinstance(content, str) else content
        await Agent.workspace.write_file_bytes(f"/skills/{path}", data)
    return skills.from_workspace(allow_model_skills=True).bind(Agent()), change


class Packages:
    """Packages that were made for a test."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._patch = tmp_path, monkeypatch

    def named(self, name: str, *, packed: bool) -> str:
        files: dict[str, str | bytes] = {f"{name}/__init__.py": ""}
        files |= {f"{name}/skills/{path}": content for path, content in FILES.items()}
        if packed:
            place = self.root / f"{name}.zip"
            place.write_bytes(zipped(files))
        else:
            place = write(self.root / name, files)
        self._patch.syspath_prepend(str(place))
        return name


@pytest.fixture
async def made(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> AsyncIterator[Made]:
    kind: Any = request.param
    if callable(kind):
        yield await kind(tmp_path)
    elif kind in ("package", "package in a zip"):
        name = f"everthink_skills_{'zip' if 'zip' in kind else 'folder'}"
        package = Packages(tmp_path, monkeypatch).named(name, packed="zip" in kind)
        yield skills.from_package(package), never
        sys.modules.pop(package, None)
    elif kind == "manifest":
        yield skills.from_manifest(manifest()), never
    else:
        site = Site()
        for name, pack in (("alpha", zipped), ("beta", tarred)):
            skip = len(name) + 1
            site.publish(
                name, pack({p[skip:]: data for p, data in FILES.items() if p.startswith(f"{name}/")})
            )

        async def change(body: str) -> None:
            site.publish("alpha", text("alpha", "About alpha.", body).encode(), "skill-md")

        yield skills.from_index(site.url, loopback=True, refresh_interval=0), change
        site.close()


async def never(body: str) -> None:
    pytest.skip("it changes with the program only")


def manifest() -> dict[str, Any]:
    files = [
        {"path": path, "content": data if isinstance(data, str) else base64.b64encode(data).decode(),
         "encoding": "text" if isinstance(data, str) else "base64"}
        for path, data in FOUR.items()
    ]  # fmt: skip
    alpha = {
        "name": "alpha",
        "description": "About alpha.",
        "body": "Alpha says so.\n",
        "license": "MIT",
        "resources": files,
    }
    return {
        "id": "made",
        "skills": [alpha, {"name": "beta", "description": "About beta.", "body": "Beta.\n"}],
    }


KINDS: Any = [
    pytest.param(of_directory, id="directory"),
    pytest.param(of_several, id="directories"),
    pytest.param(of_bucket, id="bucket"),
    pytest.param(of_workspace, id="workspace"),
    pytest.param("package", id="package"),
    pytest.param("package in a zip", id="package in a zip"),
    pytest.param("manifest", id="manifest"),
    pytest.param("index", id="index"),
]
every_source = pytest.mark.parametrize("made", KINDS, indirect=True)


@every_source
async def test_it_lists_its_skills_without_their_instructions(made: Made) -> None:
    source, _ = made

    listed = await source.list()

    assert isinstance(source, SkillSource)
    assert [(one.name, one.description, one.source_id) for one in listed] == [
        ("alpha", "About alpha.", source.id),
        ("beta", "About beta.", source.id),
    ]


@every_source
async def test_it_gives_the_instructions_and_the_list_of_files(made: Made) -> None:
    source, _ = made
    await source.list()

    loaded = await source.load("alpha")

    assert loaded is not None
    assert (loaded.name, loaded.body.strip(), loaded.license) == ("alpha", "Alpha says so.", "MIT")
    assert {one.path: (one.kind, one.encoding) for one in loaded.resources} == {
        "references/guide.md": ("reference", "text"),
        "scripts/run.py": ("script", "text"),
        "assets/logo.png": ("asset", "base64"),
        "LICENSE.txt": ("file", "text"),
    }
    assert await source.load("gamma") is None


@every_source
async def test_a_file_is_read_as_text_or_as_base64(made: Made) -> None:
    source, _ = made
    await source.list()

    guide = await source.read_resource("alpha", "references/guide.md")
    logo = await source.read_resource("alpha", "assets/logo.png")

    assert guide is not None
    assert (guide.content, guide.encoding, guide.media_type) == ("# Guide\n", "text", "text/markdown")
    assert logo is not None
    assert (base64.b64decode(logo.content), logo.encoding, logo.media_type) == (BYTES, "base64", "image/png")


@every_source
@pytest.mark.memory_case(513)
async def test_no_path_leads_out_of_a_skill(made: Made) -> None:
    source, _ = made
    await source.list()

    for path in [*UNSAFE, "nothing.txt", "SKILL.md", "references"]:
        assert await source.read_resource("alpha", path) is None, path
    assert await source.read_resource("gamma", "LICENSE.txt") is None


@every_source
async def test_what_changed_shows_in_the_fingerprint_and_in_the_instructions(made: Made) -> None:
    source, change = made
    await source.list()
    before = source.fingerprint

    await source.refresh()
    assert source.fingerprint == before
    await change("Other words.\n")
    await source.refresh()

    assert source.fingerprint != before
    loaded = await source.load("alpha")
    assert loaded is not None
    assert loaded.body.strip() == "Other words."


async def test_a_directory_is_looked_at_once_in_a_while(tmp_path: Path) -> None:
    clock = ManualClock()
    write(tmp_path, FILES)
    source = skills.from_directory(tmp_path, refresh_interval=5, clock=clock)
    await source.list()
    write(tmp_path, {"gamma/SKILL.md": text("gamma")})

    assert [one.name for one in await source.list()] == ["alpha", "beta"]
    await clock.advance(5)
    assert [one.name for one in await source.list()] == ["alpha", "beta", "gamma"]


@pytest.mark.memory_case(537)
async def test_a_directory_beside_a_module_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "app", {f"skills/{path}": data for path, data in FILES.items()})
    write(tmp_path / "app", {"other/gamma/SKILL.md": text("gamma"), "more/delta/SKILL.md": text("delta")})
    monkeypatch.chdir("/")

    usual = skills.from_directory("skills", beside=str(tmp_path / "app" / "agent.py"))
    named = skills.from_directory("other", beside=str(tmp_path / "app" / "agent.py"))

    assert [one.name for one in await usual.list()] == ["alpha", "beta"]
    assert [one.name for one in await named.list()] == ["gamma"]


@pytest.mark.memory_case(538)
async def test_a_directory_is_a_source_with_a_fingerprint_that_tells_of_names_that_are_there_twice(
    tmp_path: Path,
) -> None:
    write(tmp_path, {"a/SKILL.md": text("same", "The first."), "b/SKILL.md": text("same", "The second.")})
    source = skills.from_directory(tmp_path, id="mine")
    assert source.fingerprint == "mine"

    [same] = await source.list()

    assert same.description == "The first."
    assert source.fingerprint.startswith("mine:")
    assert "same name" in source.diagnostics[-1].what


async def test_the_first_directory_to_have_a_skill_has_it(tmp_path: Path) -> None:
    write(tmp_path / "own", {"a/SKILL.md": text("a", "Ours.")})
    write(tmp_path / "shared", {"a/SKILL.md": text("a", "Theirs."), "b/SKILL.md": text("b")})
    source = skills.from_directory(tmp_path / "own", tmp_path / "shared", tmp_path / "nowhere")

    found = {one.name: one.description for one in await source.list()}

    assert found == {"a": "Ours.", "b": "Talk like a pirate."}
    assert source.diagnostics[0].what.startswith("It is in several")
    assert "is left out" in source.diagnostics[1].what


async def test_what_can_be_seen_no_more_is_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "skills", FILES)
    source = skills.from_directory(tmp_path / "skills", refresh_interval=0)
    await source.list()

    (tmp_path / "skills").rename(tmp_path / "gone")

    loaded = await source.load("alpha")
    assert loaded is not None
    with pytest.raises(FileNotFoundError):
        await source.refresh()


@pytest.mark.memory_case(512)
async def test_a_manifest_lists_skills_without_contents_and_drops_unsafe_files() -> None:
    files = [
        {"path": path, "content": "x"} for path in ("references/ok.md", "../out.md", "/abs.md", "a/./b.md")
    ]
    source = skills.from_manifest(
        {
            "id": "made",
            "fingerprint": "v1",
            "skills": [{"name": "a", "description": "d", "body": "b", "resources": files}],
        }
    )

    assert source.fingerprint == "v1"
    assert [one.name for one in await source.list()] == ["a"]
    loaded = await source.load("a")
    assert loaded is not None
    assert [one.path for one in loaded.resources] == ["references/ok.md"]
    assert not hasattr(loaded.resources[0], "content")
    assert await source.read_resource("a", "../out.md") is None


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({"id": "x", "skils": []}, "Did you mean 'skills'"),
        ({"id": "x", "skills": "a"}, "Give a list"),
        ({"skills": []}, "its id"),
        ({"id": "x", "skills": [{"name": "a"}]}, "its description"),
        ({"id": "x", "skills": [{"name": "a", "description": "d", "bodi": ""}]}, "Did you mean 'body'"),
        ({"id": "x", "skills": [{"name": "a", "description": "d", "resources": [{"path": "a"}]}]}, "content"),
        (
            {
                "id": "x",
                "skills": [
                    {
                        "name": "a",
                        "description": "d",
                        "resources": [{"path": "a", "content": "x", "encoding": "hex"}],
                    }
                ],
            },
            "encoding",
        ),
        ({"id": "x", "skills": [{"name": "a", "description": "d", "metadata": "x"}]}, "metadata"),
    ],
)
def test_a_manifest_that_is_written_wrongly_is_refused(manifest: Any, words: str) -> None:
    from everthink.errors import InvalidSettings

    with pytest.raises(InvalidSettings, match=words):
        skills.from_manifest(manifest)


def test_names_of_a_manifest_may_be_those_of_the_original() -> None:
    source = skills.from_manifest(
        {
            "id": "x",
            "skills": [
                {"name": "a", "description": "d", "body": "b", "allowedTools": "Read", "rawContent": "raw",
                 "resources": [{"path": "a.bin", "content": "AA==", "mimeType": "x/y", "encoding": "base64"}]}
            ],
        }
    )  # fmt: skip
    assert source.id == "x"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: skills.from_directory(""), "Give the path"),
        (lambda: skills.from_directory(None), "Give the path"),
        (lambda: skills.from_package("no_such_package_of_ours"), "there is no package"),
        (lambda: skills.from_package("everthink", "../x"), "names no folder"),
        (lambda: skills.from_index("ftp://x"), "no address"),
        (lambda: skills.from_index("example.com"), "no address"),
        (lambda: skills.from_workspace("/"), "Name one"),
        (lambda: skills.object_store(None, skills="a"), r"skills is 'a'.*write \['a'\]"),
        (lambda: skills.object_store(None, fingerprint="time"), '"metadata" or "content"'),
        (lambda: skills.Bounds(files=0), "above 0"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused_where_it_is_written(
    make: Callable[[], Any], words: str
) -> None:
    from everthink.errors import InvalidSettings

    with pytest.raises(InvalidSettings, match=words):
        make()


async def test_no_frontmatter_is_read_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64,000 characters of YAML take a tenth of a second, and there may be hundreds of skills."""
    real, readers = frontmatter.read, set[int]()

    def read(*given: Any) -> frontmatter.Read:
        readers.add(threading.get_ident())
        return real(*given)

    monkeypatch.setattr(frontmatter, "read", read)
    source, _ = await of_directory(tmp_path)
    assert [one.name for one in await source.list()] == ["alpha", "beta"]
    assert readers
    assert threading.get_ident() not in readers
