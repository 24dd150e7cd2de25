"""What is tested is what the locks say, file by file; what the page bundles is listed with its terms."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .source import PACKAGE, ROOT

LOCK = ROOT / "requirements" / "tested.txt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LICENSES = PACKAGE / "devtools" / "static" / "THIRD_PARTY_LICENSES.md"
NPM = sorted(
    path.parent
    for top in ("ui", "tests")
    for path in (ROOT / top).rglob("package.json")
    if "node_modules" not in path.parts
)
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


# --- Python


@cache
def locked() -> dict[str, str]:
    """The version of each package in the lock."""
    pinned = (entry.split()[0] for entry in entries())
    return {canonicalize_name(name): version for name, _, version in (one.partition("==") for one in pinned)}


def entries() -> Iterator[str]:
    """The lock without its comments, a package each."""
    text = re.sub(r"^\s*#.*\n", "", LOCK.read_text("utf-8"), flags=re.M)
    yield from text.replace("\\\n", " ").splitlines()


def asked() -> Iterator[Requirement]:
    """What `make test` needs, as pyproject.toml says it."""
    project = PROJECT["project"]
    named = [
        *PROJECT["build-system"]["requires"],
        *PROJECT["dependency-groups"]["dev"],
        *project["dependencies"],
    ]
    extras = ["all"]
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            requirement = Requirement(line)
            if requirement.name == project["name"]:
                extras += sorted(requirement.extras)
            else:
                named.append(line)
    yield from map(Requirement, named)


def test_the_lock_holds_all_that_the_project_asks_for() -> None:
    missing = [
        f"{one}: the lock has {locked().get(canonicalize_name(one.name))}"
        for one in asked()
        if not one.specifier.contains(locked().get(canonicalize_name(one.name), "0"), prereleases=True)
    ]
    assert missing == [], "Run scripts/lock."


def test_every_line_of_the_lock_is_one_version_with_its_hashes() -> None:
    for entry in entries():
        pin, *hashes = re.split(r"\s+(?=--hash)", entry.strip())
        assert re.fullmatch(r"[a-z0-9._-]+==[0-9a-z.]+( ; .+)?", pin), entry
        assert hashes, f"{pin} has no hash"
        assert all(HASH.fullmatch(one) for one in hashes), entry


def test_the_lock_names_no_place_to_fetch_from() -> None:
    text = LOCK.read_text("utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*-[a-z-]", re.sub(HASH, "", text), re.M), "an option of pip, such as an index"
    assert not re.search(r"(?<![\w.])/\w", text), "a path of somebody's machine"


@pytest.mark.slow
def test_make_installs_the_lock_and_nothing_else_unless_told() -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed.")

    def plan(*args: str) -> str:
        command = [make, "--dry-run", "--always-make", "install", *args]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    installs = re.findall(r"pip install [^&;]*", plan())
    assert installs
    assert all("--require-hashes" in one or "--no-deps --no-build-isolation" in one for one in installs)
    assert "--require-hashes" not in plan("LOCK=")


# --- npm


def npm_lock(folder: Path) -> dict[str, Any]:
    """The packages of a folder's lock, by their place in node_modules."""
    return json.loads((folder / "package-lock.json").read_text("utf-8"))["packages"]


def found_from(place: str, name: str, lock: dict[str, Any]) -> bool:
    """Whether Node finds `name` from the package at `place`: beside it, or further up."""
    while True:
        if f"{place}/node_modules/{name}".lstrip("/") in lock:
            return True
        if not place:
            return False
        place = place.rpartition("node_modules/")[0].rstrip("/")


@pytest.mark.parametrize("folder", NPM, ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_each_npm_lock_is_complete(folder: Path) -> None:
    """Those packages too that only other platforms install: without them `npm ci` refuses."""
    lock, manifest = npm_lock(folder), json.loads((folder / "package.json").read_text("utf-8"))
    for kind in ("dependencies", "devDependencies"):
        assert lock[""].get(kind, {}) == manifest.get(kind, {}), "Run scripts/lock."
    assert "omit-lockfile-registry-resolved=true" in (folder / ".npmrc").read_text("utf-8")
    wrong = [f"{place} has no sha512" for place, one in lock.items() if place and not sha512(one)]
    wrong += [f"{place} names where it is from" for place, one in lock.items() if "resolved" in one]
    wrong += [
        f"{place} needs {name}"
        for place, one in lock.items()
        for kind in ("dependencies", "optionalDependencies")
        for name in one.get(kind, {})
        if not found_from(place, name, lock)
    ]
    assert wrong == []


def sha512(package: dict[str, Any]) -> bool:
    """Whether the lock knows the package's own hash."""
    return re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", package.get("integrity", "")) is not None


# --- what the page bundles


def test_every_bundled_package_is_locked_and_its_license_is_told() -> None:
    text = LICENSES.read_text("utf-8")
    lock = npm_lock(ROOT / "ui")
    known = {
        (place.rpartition("node_modules/")[2], one.get("version"), one.get("license"))
        for place, one in lock.items()
    }
    rows = [row.split(" | ") for row in re.findall(r"^\| (.+) \|$", text, re.M)[1:]]
    listed = [(name, version, license) for name, version, license in rows]
    assert len(listed) > 50
    assert {name for name, _, _ in listed} >= {"react", "react-dom", "agents", "ai"}
    assert [one for one in listed if one not in known] == [], "Run `npm ci && npm run build` in ui/."
    for name, version, license in listed:
        assert f"\n## {name} {version} ({license})\n" in text
    assert (
        "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" in text
    )  # the Apache License in full


@pytest.mark.slow
def test_the_wheel_holds_the_page_and_the_licenses_of_what_is_in_it(tmp_path: Path) -> None:
    if find_spec("hatchling") is None:
        assert not os.environ.get("CI"), "The lock brings hatchling: make install"
        pytest.skip("hatchling is not installed: make install")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        shipped = archive.read("everthink/devtools/static/THIRD_PARTY_LICENSES.md")
    assert shipped == LICENSES.read_bytes()
    assert "everthink/devtools/static/index.html" in names
    told = [name for name in names if ".dist-info/licenses/" in name]
    assert {Path(name).name for name in told} == {"LICENSE", "THIRD_PARTY_LICENSES.md"}
