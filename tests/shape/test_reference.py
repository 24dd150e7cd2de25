"""The reference is what the docstrings say, and everything that can be imported is in it."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import everthink
from everthink.facades import FACADES

from ..support.public import MODULES
from .script import Ran, run
from .source import ROOT


def reference(*arguments: str) -> Ran:
    return run("reference", *arguments)


def test_the_reference_is_fresh() -> None:
    checked = reference("--check")
    assert checked.returncode == 0, checked.stderr


def slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_the_table_of_plays_says_what_each_takes_and_does() -> None:
    page = (ROOT / "docs" / "reference" / "testing.md").read_text()
    for name in ("says", "thinks", "calls", "waits", "cites"):
        [(fields, words)] = re.findall(rf"^\| `{name}` \| (.*) \| (.*) \|$", page, re.M)
        assert fields.strip()
        assert words.strip()


def exported() -> list[tuple[str, str]]:
    """What users import: module and name."""
    return [(module, name) for module in MODULES for name in import_module(module).__all__]


PAGES = ROOT / "docs" / "reference"
PLANNED = tomllib.loads((ROOT / "scripts" / "reference.toml").read_text())


def test_the_facades_of_the_reference_are_those_of_the_package() -> None:
    assert PLANNED["facades"] == list(FACADES)


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, name in exported() if name not in PLANNED["hidden"]]
)
def test_every_export_has_its_place(module: str, name: str) -> None:
    section = (PAGES / "index.md").read_text().partition(f"## What `{module}` exports\n")[2]
    listed = section.partition("\n## ")[0]
    [(page, anchor)] = re.findall(rf"^\| \[`{name}`\]\((\w+\.md)#([\w-]+)\)", listed, re.M)
    text = (PAGES / page).read_text()
    # One title has this anchor: those who show Markdown number equal ones each in their own way.
    titles = [slug(title) for title in re.findall(r"^#+ (.+)$", text, re.M)]
    assert titles.count(anchor) == 1
    if not anchor.startswith(name.lower()):  # a small value is a row of a table
        assert f"| `{name}` |" in text
        return
    [imported] = re.findall(
        rf"^#+ {name}(?: \((?:class|function)\))?\n\n```python\nfrom (.+) import {name}$", text, re.M
    )
    assert imported == (module if name not in everthink.__all__ else "everthink")


# --- the script itself

PLAN = """
facades = ["harbour"]
hidden = ["Boat.moor*"]
made-for-you = ["Crew"]

[[page]]
file = "boats.md"
title = "Boats"
about = "What floats."
see = "[More](../more.md)."
takes = ["boats"]

[[page.section]]
names = [":Boat"]

[[page.section]]
title = "Knots"
table = true
names = ["boats.knots:*"]

[[page]]
file = "ropes.md"
title = "Ropes"
about = "What holds."
see = ""
takes = []

[[page.section]]
title = "All"
table = true
names = ["boats.ropes:*"]
"""

PACKAGE = {
    "__init__.py": 'from .boats.boat import Boat, Crew, launch\n\n__all__ = ["Boat", "Crew", "launch"]\n',
    "harbour.py": '"""Where boats lie."""\n\nfrom .boats.pier import Pier\n\n__all__ = ["Pier"]\n',
    "boats/__init__.py": "",
    "boats/pier.py": 'class Pier:\n    """Reaches into the water."""\n',
    "boats/boat.py": '''
from __future__ import annotations

from typing import Literal, overload

from . import knots
from .knots import Knot

Side = Literal["port", "starboard"]
"""Left or right."""
LONGEST = 12


class Crew:
    """Who sails. Made by `launch`."""

    def __init__(self, names: list[str]) -> None:
        self.names: list[str] = names
        """Everybody aboard."""


class Boat:
    """Something that floats; see `Crew` and `Boat.sail`.

        boat = Boat("Ada")

        boat.sail()

    Keep it dry.
    """

    name: str
    length: int = LONGEST
    """In metres | feet."""

    def __init__(self, name: str, *, knot: knots.Knot | None = None) -> None:
        self._name = name

    @property
    def is_afloat(self) -> bool:
        """True on water."""
        return True

    # --- at sea

    async def sail(self, where: str = "home", *crew: Crew, turn: Side = "port") -> bool:
        """Go somewhere."""
        return True

    def moor_here(self) -> None:
        """For the harbour."""

    def _leak(self) -> None: ...


@overload
def launch(boat: Boat, /) -> Crew: ...
@overload
def launch(*, name: str) -> Crew: ...
def launch(boat=None, /, *, name=""):
    """Put a boat into the water."""
''',
    "boats/knots.py": '''
__all__ = ["Bowline", "Anchor"]

class Knot: ...

class Bowline(Knot, tag="bowline"):
    """Holds | and opens."""

    turns: int = 2

class Anchor(Knot):
    """Heavy."""
''',
    "boats/ropes.py": '''
__all__ = ["Bowline"]

class Bowline:
    """A rope, and not the knot."""
''',
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in PACKAGE.items():
        file = tmp_path / "src" / "everthink" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "reference.toml").write_text(PLAN)
    return tmp_path


@pytest.fixture
def page(project: Path) -> str:
    written = reference("--root", str(project))
    assert written.stdout == "3 pages, 3 changed.\n", written.stderr
    return (project / "docs" / "reference" / "boats.md").read_text()


def test_a_class_is_its_signature_its_text_its_attributes_and_its_methods(page: str) -> None:
    begins = page[page.index("## Boat") : page.index("### Boat.sail")]
    assert (
        begins.strip()
        == """## Boat

```python
from everthink import Boat

class Boat

Boat(name: str, *, knot: knots.Knot | None = None)
```

Something that floats; see [`Crew`](#crew) and [`Boat.sail`](#boatsail).

```python
boat = Boat("Ada")

boat.sail()
```

Keep it dry.

| Attribute | Type | Default |  |
| --- | --- | --- | --- |
| `name` | `str` |  |  |
| `length` | `int` | `12` | In metres \\| feet. |
| `is_afloat` | `bool` |  | True on water. |

**At sea**"""
    )
    assert (
        """### Boat.sail

```python
async def sail(where: str = "home", *crew: Crew, turn: Side = "port") -> bool
```

Go somewhere."""
        in page
    )
    assert "moor_here" not in page
    assert "_leak" not in page


def test_what_is_exported_and_not_named_goes_to_the_page_of_its_module(page: str) -> None:
    assert "## Crew" in page
    assert "Crew(" not in page  # it is made for you
    assert "| `names` | `list[str]` | Everybody aboard. |" in page
    assert "def launch(boat: Boat, /) -> Crew\ndef launch(*, name: str) -> Crew\n" in page


def test_what_a_facade_exports_is_imported_from_there(page: str, project: Path) -> None:
    assert "```python\nfrom everthink.harbour import Pier\n\nclass Pier\n```" in page
    index = (project / "docs" / "reference" / "index.md").read_text()
    assert index.endswith(
        "## What `everthink.harbour` exports\n\nWhere boats lie.\n\n"
        "| Name |  |\n| --- | --- |\n| [`Pier`](boats.md#pier) | Reaches into the water. |\n"
    )


def test_small_values_are_rows_in_the_order_of_their_file(page: str) -> None:
    rows = page[page.index("From `everthink.boats.knots`.") :].splitlines()[4:6]
    assert rows == [
        '| `Bowline` | `type` is `"bowline"`<br>`turns: int = 2` | Holds \\| and opens. |',
        "| `Anchor` |  | Heavy. |",
    ]


def test_two_things_of_one_name_are_both_there(page: str, project: Path) -> None:
    assert "| `Bowline` | `type`" in page
    ropes = (project / "docs" / "reference" / "ropes.md").read_text()
    assert "| `Bowline` | A rope, and not the knot. |" in ropes


def test_names_of_types_are_explained(page: str) -> None:
    assert '| `Side` | `Literal["port", "starboard"]` | Left or right. |' in page


def test_a_page_that_is_out_of_date_fails_the_check(project: Path) -> None:
    reference("--root", str(project))
    assert reference("--check", "--root", str(project)).returncode == 0
    boat = project / "src" / "everthink" / "boats" / "boat.py"
    boat.write_text(boat.read_text().replace("Keep it dry.", "Keep it very dry."))
    checked = reference("--check", "--root", str(project))
    assert checked.returncode == 1
    assert "docs/reference/boats.md is out of date: run scripts/reference." in checked.stderr
    left = project / "docs" / "reference" / "ships.md"
    left.write_text("from an earlier release")
    reference("--root", str(project))
    assert not left.exists()
    assert reference("--check", "--root", str(project)).returncode == 0


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('takes = ["boats"]', "takes = []", "Crew of everthink.boats.boat is on no page"),
        ('":Boat"', '":Ship"', "there is no Ship"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(project: Path, before: str, after: str, said: str) -> None:
    plan = project / "scripts" / "reference.toml"
    plan.write_text(plan.read_text().replace(before, after))
    written = reference("--root", str(project))
    assert written.returncode == 1
    assert said in written.stderr
