"""`everthink new`: a project to start from, or a package that extends everthink.

NAME --project.py | extension.py--> its files, in a folder that was not there or is empty
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from pathlib import Path

import click

from . import extension, project

__all__ = ["command"]

HARMLESS = {".git", ".DS_Store"}
RULE = "names of packages have the letters a to z, digits, and hyphens between them."


@click.command(
    "new",
    short_help="Start a project: an agent with a tool, and a test.",
    help="""Start a project: an agent with a tool, and a test that runs without a model.

    NAME is the folder to make; the project is called like it, in letters that packages may have. A folder
    with something in it is left alone. With --extension it is a package that adds tools and hooks to agents
    of everthink, in everybody's projects.

    \b
    Example:
      everthink new shop-assistant
      cd shop-assistant && everthink dev
      everthink new --extension word-count""",
)
@click.argument("name")
@click.option("--extension", "is_extension", is_flag=True, help="Make a package that extends everthink.")
@click.option("--json", "as_json", is_flag=True, help="Print the files that were made, for scripts.")
def command(name: str, is_extension: bool, as_json: bool) -> None:
    """Make a project, or a package."""
    from ..errors import AgentError
    from ..serving.output import print_json, say

    folder = Path(name)
    package = _package(folder)
    _check_name(name, package)
    if folder.exists() and (not folder.is_dir() or {entry.name for entry in folder.iterdir()} - HARMLESS):
        what = "is not empty" if folder.is_dir() else "is a file"
        raise AgentError(
            f"{folder} {what}.", kept="Nothing was changed.", next_step="Choose a name that is free."
        )
    if is_extension:
        package = extension.package_of(package)
    files = extension.files(package) if is_extension else project.files(package)
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"folder": str(folder), "name": package, "files": list(files)})
        return
    say(f"Made {folder}:")
    for path in files:
        say(f"  {path}", "dim")
    if not is_extension and package != folder.resolve().name:
        say(f"\nThe project is called {package} (in pyproject.toml and README.md): {RULE}", "yellow")
    say("\nNext:")
    if folder.resolve() != Path.cwd():
        say(f"  cd {shlex.quote(str(folder))}")
    if is_extension:
        say(f"  pip install -e '.[dev]'     into the Python of your agents; it is {package} there")
        say("  python -m pytest            its tests; they need no key")
        say(f'  extensions = [installed("{extension.name_of(package)}")]     in the class of an agent')
        return
    say("  everthink dev               then open the address it prints")
    say("  pip install -e '.[dev]'     what it needs, and pytest")
    say("  python -m pytest            the agent's test; it needs no key")


def _package(folder: Path) -> str:
    """A name that packaging tools accept, from that of the folder: *My Ägent* is my-agent. Empty if none."""
    name = unicodedata.normalize("NFKD", folder.resolve().name.replace("ß", "ss")).lower()
    plain = "".join(letter for letter in name if not unicodedata.combining(letter))
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")


def _check_name(name: str, package: str) -> None:
    from ..serving.output import WrittenWrongly

    what = ""
    if not name.strip() or any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        what = f"{name!r} is no name for a folder."
    elif not package:
        what = f"No name for a project can be made of {name!r}: {RULE}"
    elif package == "everthink":
        what = "A project that is called everthink could not depend on everthink."
    if what:
        raise WrittenWrongly(
            what, kept="Nothing was made.", next_step="Choose another: everthink new shop-assistant"
        )
