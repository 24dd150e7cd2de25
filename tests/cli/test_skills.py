"""`everthink skills` as a person meets it, and as a script does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from everthink.cli.main import cli
from tests.skills.build import FOUR, skill, text, write
from tests.skills.sites import zipped


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRunner]:
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("agents", None)
    yield CliRunner()
    sys.modules.pop("agents", None)


def test_check_says_what_is_well_and_what_is_not(run: CliRunner, tmp_path: Path) -> None:
    skill(tmp_path / "skills", files=FOUR)
    write(tmp_path / "skills", {"bad/SKILL.md": "# No", "odd/SKILL.md": text("Odd", "d", author="ada")})

    result = run.invoke(cli, ["skills", "check", "skills"])

    assert result.exit_code == 1
    assert "skill     pirate-style  5 files" in result.output
    assert "no skill  bad" in result.output
    assert "  error    SKILL.md does not begin with a frontmatter." in result.output
    assert "  warning  Its name is not made of words in small letters" in result.output
    assert "  note     The field 'author' is none of the format" in result.output
    assert "2 skills, 1 error, 2 warnings, 1 note." in result.output


def test_check_of_one_skill_ends_with_0_unless_warnings_count(run: CliRunner, tmp_path: Path) -> None:
    skill(tmp_path, "good")
    write(tmp_path, {"odd/SKILL.md": text("other-name")})

    assert (
        run.invoke(cli, ["skills", "check", "good"]).output == "skill     good  1 file\n1 skill, all well.\n"
    )
    assert run.invoke(cli, ["skills", "check", "odd"]).exit_code == 0
    assert run.invoke(cli, ["skills", "check", "odd", "--strict"]).exit_code == 1


def test_check_names_files_that_are_not_there_and_scripts_that_nobody_runs(
    run: CliRunner, tmp_path: Path
) -> None:
    body = "Run scripts/count.py, then scripts/cuont.py. Read references/style.md, and not a/scripts/x.py."
    files = {
        "scripts/count.py": "1",
        "scripts/old.rb": "1",
        "scripts/data.json": "{}",
        "script/new.py": "1",
        "references/style.md": "x",
    }
    write(
        tmp_path,
        {"one/SKILL.md": text("one") + body, **{f"one/{path}": given for path, given in files.items()}},
    )

    result = run.invoke(cli, ["skills", "check", "one"])

    assert result.exit_code == 0
    assert "  note     Its instructions name scripts/cuont.py, which is not there." in result.output
    assert "  note     scripts/old.rb is run by nobody." in result.output
    assert "  note     script/new.py is a file like any other.\n" in result.output
    assert "Did you mean scripts/new.py?" in result.output
    assert "1 skill, 3 notes." in result.output


def test_check_names_the_folder_that_would_be_a_root(run: CliRunner, tmp_path: Path) -> None:
    write(tmp_path, {"agents/desk/skills/one/SKILL.md": text("one")})

    assert "Name 'desk/skills' as a root of its own." in run.invoke(cli, ["skills", "check", "agents"]).output


def test_check_of_a_folder_without_skills_ends_with_1(run: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    result = run.invoke(cli, ["skills", "check", "empty"])

    assert result.exit_code == 1
    assert "There is no skill in empty" in result.output


def test_check_for_scripts(run: CliRunner, tmp_path: Path) -> None:
    write(tmp_path, {"odd/SKILL.md": text("other-name")})

    found = json.loads(run.invoke(cli, ["skills", "check", "odd", "--json"]).output)

    assert found["ok"] is True
    assert found["skills"] == [{"name": "other-name", "description": "Talk like a pirate.", "files": 1}]
    assert [one["level"] for one in found["diagnostics"]] == ["warning"]


def test_control_characters_of_a_skill_have_no_power_over_the_terminal(
    run: CliRunner, tmp_path: Path
) -> None:
    write(
        tmp_path, {"a/SKILL.md": text("a", '"\\e[31mred"'), "a/\x1b[2J.md": "x", "b\x1b]0;x/SKILL.md": "# No"}
    )

    for command in (["check", "."], ["list", "."]):
        assert "\x1b" not in run.invoke(cli, ["skills", *command]).output


def test_list_names_the_skills_of_each_agent(run: CliRunner, tmp_path: Path) -> None:
    skill(tmp_path / "skills")
    write(
        tmp_path,
        {
            "agents.py": "from everthink import App, Think, skills\n"
            "class Sailor(Think):\n"
            "    model = 'demo'\n"
            "    skills = [skills.from_directory('skills', beside=__file__), skills.from_workspace()]\n"
            "class Cook(Think):\n"
            "    model = 'demo'\n"
            "    def get_skills(self):\n"
            "        return []\n"
            "class Guest(Think):\n"
            "    model = 'demo'\n"
            "app = App(Sailor, Cook, Guest)\n"
        },
    )

    result = run.invoke(cli, ["skills", "list", "agents.py"])

    assert result.exit_code == 0, result.output
    assert result.output == (
        "Sailor\n"
        "  pirate-style                 Talk like a pirate.\n"
        "  workspace:/skills: asked when an agent runs\n"
        "Cook\n"
        "  get_skills(): asked when an agent runs\n"
        "Guest\n"
        "  no skills\n"
    )
    found = json.loads(run.invoke(cli, ["skills", "list", "agents.py", "--json"]).output)
    assert [one["name"] for one in found["Sailor"]["skills"]] == ["pirate-style"]


def test_list_of_a_folder_of_skills(run: CliRunner, tmp_path: Path) -> None:
    skill(tmp_path / "skills")

    assert "pirate-style" in run.invoke(cli, ["skills", "list", "skills"]).output


def test_install_says_what_it_did(run: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "s.zip").write_bytes(zipped({"pirate-style/SKILL.md": text(), "pirate-style/a.md": "x"}))
    command = ["skills", "install", "s.zip", "--into", "skills"]

    first, again, replaced = (
        run.invoke(cli, [*command, *more]) for more in ([], [], ["--replace", "--json"])
    )

    assert first.output == f"installed pirate-style  2 files, {len(text()) + 1} bytes  skills/pirate-style\n"
    assert again.exit_code == 1
    assert "There is a skill 'pirate-style' in skills already." in again.output
    assert json.loads(replaced.output)[0]["replaced"] is True


def test_every_command_shows_an_example(run: CliRunner) -> None:
    for command in ([], ["check"], ["list"], ["install"]):
        said = run.invoke(cli, ["skills", *command, "--help"]).output
        assert "  everthink skills " in said.partition("Examples:\n")[2]
