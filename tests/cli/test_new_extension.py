"""`everthink new --extension`: a package that can be built, installed and tested as it is."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from everthink.cli.main import cli


def made(run: CliRunner, name: str) -> str:
    """What was said; the package is in a folder of that name."""
    done = run.invoke(cli, ["new", "--extension", name])
    assert done.exit_code == 0, done.output
    return done.output


def run_in(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_package_is_built_installed_and_passes_its_tests(run: CliRunner, tmp_path: Path) -> None:
    said = made(run, "word-count")
    project, python = tmp_path / "word-count", sys.executable

    # Built, and installed into a Python of its own, which has everthink and pytest from ours
    offline = ("--no-index", "--no-deps", "--disable-pip-version-check", "-q")
    run_in(project, python, "-m", "pip", "wheel", *offline, "--no-build-isolation", "-w", "dist", ".")
    [wheel] = (project / "dist").glob("everthink_word_count-0.1.0-*.whl")
    run_in(tmp_path, python, "-m", "venv", "--without-pip", "own")
    own = str(tmp_path / "own" / "bin" / "python")
    run_in(tmp_path, python, "-m", "pip", "--python", own, "install", *offline, str(wheel))
    site = run_in(tmp_path, own, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(site, "ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")

    # What it says to do next works as it is written
    assert "  python -m pytest " in said
    assert "2 passed" in run_in(project, own, "-m", "pytest", "-p", "no:cacheprovider")
    assert 'extensions = [installed("word-count")]' in said
    assert "word-count 0.1.0 (everthink-word-count)" in run_in(project, own, "-m", "everthink.cli", "doctor")


@pytest.mark.parametrize(
    ("name", "package", "extension", "of"),
    [
        ("word-count", "everthink-word-count", "word-count", "WordCount"),
        ("everthink-word-count", "everthink-word-count", "word-count", "WordCount"),
        ("3d", "everthink-3d", "3d", "Extension3d"),
        ("import", "everthink-import", "import", "Import"),
        ("Straße 9", "everthink-strasse-9", "strasse-9", "Strasse9"),
    ],
)
def test_names_fit_whatever_they_are_for(
    run: CliRunner, tmp_path: Path, name: str, package: str, extension: str, of: str
) -> None:
    made(run, name)
    project = tmp_path / name
    told = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    module = package.replace("-", "_")
    assert told["name"] == package
    assert told["entry-points"] == {"everthink.extensions": {extension: f"{module}:{of}"}}
    source = ast.parse((project / "src" / module / "__init__.py").read_text())
    assert [one.name for one in source.body if isinstance(one, ast.ClassDef)] == [of]
    ast.parse((project / "tests" / f"test_{module}.py").read_text())
    assert "{" not in (project / "README.md").read_text()


def test_scripts_are_told_what_was_made(run: CliRunner, tmp_path: Path) -> None:
    told = json.loads(run.invoke(cli, ["new", "--extension", "sums", "--json"]).output)
    assert (told["folder"], told["name"]) == ("sums", "everthink-sums")
    assert "src/everthink_sums/__init__.py" in told["files"]


def test_a_name_that_leaves_nothing_is_refused(run: CliRunner, tmp_path: Path) -> None:
    for name in ("everthink", "…"):
        assert run.invoke(cli, ["new", "--extension", name]).exit_code == 2
    assert list(tmp_path.iterdir()) == []
