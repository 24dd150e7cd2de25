"""What `dev` and `serve` are asked to serve: what is there, what is not, and what to type instead."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from everthink.cli import serve
from everthink.cli.main import cli
from everthink.errors import AgentError
from everthink.serving.output import WrittenWrongly
from everthink.serving.target import Asked, load, watched

AGENT = "from everthink import App, Think\n\nclass Helper(Think):\n    model = 'demo'\n"
FILES = {
    "site_app.py": AGENT + "\napp = App(Helper)\n",
    "site_class.py": AGENT,
    "site_two.py": AGENT + "\nclass Guide(Helper):\n    pass\n",
    "site_none.py": "x = 1\n",
    "site_plain.py": "from fastapi import FastAPI\n\nsite = FastAPI()\n\n\n"
    "async def other(scope, receive, send): ...\n",
    "site_made.py": AGENT
    + "\nasync def later():\n    return App(Helper)\n\n\ndef made(one, two): ...\n\n\nclass Thing: ...\n",
    "site_broken.py": "def broken(:\n",
    "site_pkg/inner.py": AGENT + "\nfront = App(Helper)\n",
    "site_agents/helper.py": AGENT,
    "site_shop/agents/helper.py": AGENT,
    "site_shop/settings.py": "x = 1\n",
    "site_both.py": AGENT
    + "from fastapi import FastAPI\n\nagents = App(Helper)\nsite = FastAPI()\nsite.mount('/', agents)\n",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("EVERTHINK_STORE", "HOST", "PORT"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("site_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ("site_app:app", "site_app:app"),
        ("site_app:", "site_app:"),
        ("site_class:Helper", "site_class:Helper"),
        ("site_app.py", "site_app:app"),
        ("./site_app.py", "site_app:app"),
        ("site_class.py", "site_class:Helper"),
        ("site_pkg/inner.py", "site_pkg.inner:front"),
        ("site_agents", "the agents in site_agents"),
    ],
)
def test_an_app_a_class_a_file_and_a_folder_can_be_served(target: str, source: str) -> None:
    loaded = load(target)
    assert loaded.source == source
    assert [cls.__name__ for cls, _ in loaded.agents] == ["Helper"]


def test_a_file_elsewhere_is_served_and_watched_where_it_is(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "site_far.py").write_text(AGENT)
    assert load(str(elsewhere / "site_far.py")).source == "site_far:Helper"
    assert watched(str(elsewhere / "site_far.py")) == elsewhere


WRONG = [
    ("", "is empty", ""),
    ("nosuch", "nothing to serve at 'nosuch'", "everthink new my-agents"),
    ("nosuch.py", "nothing to serve at 'nosuch.py'", "everthink new my-agents"),
    ("site_app", "nothing to serve", "everthink serve site_app.py"),
    ("site_agent", "nothing to serve", "everthink serve site_agents"),
    ("site_pkg/innr.py", "nothing to serve", "everthink serve site_pkg/inner.py"),
    ("site_none.py", "There is no agent in site_none.py", "everthink serve site_none:NAME"),
    ("site_two.py", "2 things to serve", "everthink serve site_two:Helper"),
    (":app", "names no module", ""),
    ("nosuch:app", "no module 'nosuch'", ""),
    ("site_ap:app", "no module 'site_ap'", "everthink serve site_app:app"),
    ("site_pkg.innr:front", "no module 'site_pkg.innr'", "everthink serve site_pkg.inner:front"),
    ("site_app.py:app", "no module 'site_app.py'", "everthink serve site_app:app"),
    ("./site_pkg/inner:front", "no module", "everthink serve site_pkg.inner:front"),
    ("site_app:ap", "has no 'ap'", "everthink serve site_app:app"),
    ("site_class:app", "has no 'app'", "everthink serve site_class:Helper"),
    ("site_none:app", "has no 'app'", "app = App(YourAgent)"),
    ("site_shop", "cannot be used", "everthink serve site_shop/agents"),
    ("site_both:sit", "site_both has no 'sit'", "everthink serve site_both:site"),
    ("site_both:agent", "site_both has no 'agent'", "everthink serve site_both:agents"),
    ("site_both:xyz", "site_both has no 'xyz'", "everthink serve site_both:agents"),
    ("site_none:x", "is 1, an int, which cannot be served", ""),
    ("site_made:later", "is the async function later, not an application", "app = later()"),
    ("site_made:made", "is the function made, not an application", "app = made()"),
    ("site_made:Thing", "is the class Thing, not an application", "Name an App, an agent class"),
]


@pytest.mark.parametrize(("target", "what", "advice"), WRONG)
def test_a_target_that_is_not_there_is_told_with_what_to_type(target: str, what: str, advice: str) -> None:
    with pytest.raises(WrittenWrongly) as refused:
        load(target, ask=Asked("serve"))
    assert what in refused.value.what
    assert advice in refused.value.next_step
    assert "everthink dev" not in refused.value.next_step


@pytest.mark.parametrize("target", [target for target, _, advice in WRONG if "everthink serve" in advice])
def test_what_serve_advises_can_be_typed_as_it_stands(target: str) -> None:
    with pytest.raises(WrittenWrongly) as refused:
        load(target, ask=Asked("serve"))
    advised = re.findall(r"everthink serve (\S+)", refused.value.next_step)
    if any("NAME" in one for one in advised):
        return  # it says itself that a name is missing
    assert advised
    for line in advised:
        assert load(*shlex.split(line), ask=Asked("serve")).agents


@pytest.mark.parametrize("site", ["site", "other"])
@pytest.mark.parametrize("command", ["dev", "serve"])
def test_a_site_in_which_no_agent_is_seen_is_served_and_that_is_said(command: str, site: str) -> None:
    (note,) = load(f"site_plain:{site}", ask=Asked(command)).notes
    assert note.startswith("no agent is seen in it. Mount one")


def test_a_file_that_breaks_is_no_mistake_of_the_command() -> None:
    with pytest.raises(AgentError, match=r"site_broken\.py:1: SyntaxError") as refused:
        load("site_broken.py")
    assert not isinstance(refused.value, WrittenWrongly)


def test_serve_ends_with_2_for_a_target_that_is_not_there() -> None:
    ran = CliRunner().invoke(cli, ["serve", "nosuch"])
    assert ran.exit_code == 2
    assert "nothing to serve" in ran.output


# --- a store beside an app that names its own


def test_a_store_for_an_app_of_its_own_is_refused_by_the_name_it_was_given() -> None:
    ran = CliRunner().invoke(cli, ["serve", "site_app:app", "--store", "other.db"])
    assert ran.exit_code == 2
    assert "--store does not go with site_app:app" in ran.output
    assert "Leave --store out" in ran.output

    ran = CliRunner().invoke(cli, ["serve", "site_app:app"], env={"EVERTHINK_STORE": "other.db"})
    assert ran.exit_code == 2
    assert "EVERTHINK_STORE does not go with site_app:app" in ran.output
    assert "--store" not in ran.output


def test_a_store_that_the_app_itself_names_is_no_contradiction() -> None:
    Path("site_env.py").write_text(AGENT + "\napp = App(Helper, store='sqlite:///mine.db')\n")
    assert load("site_env:app", ask=Asked("serve", "sqlite:///mine.db", "EVERTHINK_STORE")).agents


def test_serve_explains_itself_without_dev() -> None:
    assert "everthink dev" not in (serve.command.help or "")
