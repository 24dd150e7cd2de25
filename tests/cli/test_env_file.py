"""`.env`: settings of a folder, which never count more than the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from everthink.cli.env_file import settings_in
from everthink.cli.main import cli

from ..support.commands import Command

AGENT = """
import os
from everthink import Think

class Helper(Think):
    model = "demo"

    def on_request(self, request):
        return {name: os.environ.get(name) for name in ("COLOUR", "SHAPE")}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "helper.py").write_text(AGENT)
    (tmp_path / ".env").write_text("COLOUR=blue\nSHAPE=round\nEVERTHINK_STORE=sqlite:///from-env.db\n")
    return tmp_path


def settings(base: str) -> str:
    from urllib.request import Request, urlopen

    with urlopen(Request(f"{base}/agents/helper/x/y", method="POST"), timeout=10) as answer:
        return answer.read().decode()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["dev", "serve"])
def test_dev_and_serve_read_it_and_the_environment_counts_more(project: Path, command: str) -> None:
    with Command(project, command, "agents", "--port", "0", SHAPE="square") as server:
        base = server.until(r"(?:Open|at) (http://127\.0\.0\.1:\d+)")[1]
        assert settings(base) == '{"COLOUR":"blue","SHAPE":"square"}'
        assert server.interrupt() == 0
    # Options that may come from the environment may come from the file
    assert (project / "from-env.db").exists()


@pytest.mark.slow
def test_chat_reads_where_the_server_is(project: Path) -> None:
    with Command(project, "serve", "agents", "--port", "0") as server:
        base = server.until(r"at (http://127\.0\.0\.1:\d+)")[1]
        (project / ".env").write_text(f"EVERTHINK_SERVER={base}\n")
        with Command(project, "chat", "helper/room", "-m", "hello") as chat:
            assert chat.ended() == 0, chat.seen
        assert server.interrupt() == 0


@pytest.mark.parametrize("command", ["dev", "serve", "chat"])
def test_the_help_says_so(command: str) -> None:
    shown = " ".join(CliRunner().invoke(cli, [command, "--help"]).output.split())
    assert (
        "Settings in a file .env of this folder count where the environment does not say otherwise." in shown
    )


@pytest.mark.slow
def test_a_line_that_is_no_setting_is_told_without_its_content(project: Path) -> None:
    (project / ".env").write_text("COLOUR=blue\nsecret words\n")
    with Command(project, "inspect") as inspect:
        inspect.ended()
    said = "\n".join(inspect.seen)
    assert "Line 2 of .env is no NAME=value; it is left out." in said
    assert "secret" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("EVERTHINK_STOER", "Did you mean EVERTHINK_STORE?"),
        ("EVERTHINK_PORT", "Did you mean PORT?"),
        ("EVERTHINK_HOST", "Did you mean HOST?"),
        ("EVERTHINK_TOKN", "Did you mean EVERTHINK_TOKEN?"),
        ("EVERTHNK_STORE", "Did you mean EVERTHINK_STORE?"),
        ("everthink_store", "Did you mean EVERTHINK_STORE?"),
        ("EVERTHINK_DATABASE", "There are EVERTHINK_STORE, EVERTHINK_SERVER,"),
    ],
)
def test_a_setting_that_nobody_reads_is_told_with_the_nearest(project: Path, name: str, hint: str) -> None:
    (project / ".env").write_text(f"COLOUR=blue\n\n{name}=sqlite:///secret.db\n")
    with Command(project, "inspect") as inspect:
        inspect.ended()
    said = "\n".join(inspect.seen)
    assert f"{name} (line 3 of .env) is no setting of everthink; nobody reads it. {hint}" in said
    assert "secret" not in said
    (project / ".env").unlink()
    with Command(project, "inspect", **{name: "sqlite:///secret.db"}) as inspect:
        inspect.ended()
    assert f"{name} (the environment) is no setting of everthink;" in "\n".join(inspect.seen)


@pytest.mark.slow
def test_settings_that_are_read_and_those_of_others_are_not_told(project: Path) -> None:
    (project / ".env").write_text("EVERTHINK_TOKEN=a\nEVERTHINK_TEST_POSTGRES=b\nEVERY_OTHER=c\n")
    with Command(project, "inspect") as inspect:
        inspect.ended()
    assert "no setting" not in "\n".join(inspect.seen)


@pytest.mark.slow
def test_a_value_that_an_option_cannot_take_is_told_with_its_place(project: Path) -> None:
    (project / ".env").write_text("COLOUR=blue\nPORT=abc\n")
    with Command(project, "serve", "agents") as server:
        assert server.ended() == 2
    wrong = "Error: Invalid value for '--port': 'abc' is not a valid integer range."
    assert server.seen[-1] == f"{wrong} It is set as PORT in line 2 of .env."
    with Command(project, "serve", "agents", PORT="99999") as server:
        assert server.ended() == 2
    assert server.seen[-1].endswith("It is set as PORT in the environment.")
    with Command(project, "serve", "agents", "--port", "abc") as server:
        assert server.ended() == 2
    assert server.seen[-1] == wrong


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_told(project: Path) -> None:
    (project / ".env").write_bytes(b"COLOUR=\xff\xfe\n")
    with Command(project, "serve", "agents") as server:
        assert server.ended() == 1
    assert any(".env cannot be read: it is not UTF-8 text." in line for line in server.seen)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("  export A = b  ", "b"),
        ("A=", ""),
        ("A=b # a comment", "b"),
        ("A=b#c", "b#c"),
        ("A=# nothing", ""),
        ("A='b # c' # d", "b # c"),
        ('A="b\\n\\"c\\""', 'b\n"c"'),
        ("A='b\\n'", "b\\n"),
        ("A='-----BEGIN\nKEY-----'", "-----BEGIN\nKEY-----"),
        ("A=$HOME/`x`", "$HOME/`x`"),
        ("A=b=c", "b=c"),
        ("A=grün", "grün"),
    ],
)
def test_values_are_read_as_they_are_usually_written(line: str, value: str) -> None:
    assert [setting for _, setting in settings_in(f"# first\n\n{line}\n")] == [("A", value)]


@pytest.mark.parametrize("line", ["A", "A B=c", "1A=b", "=b", "A='b", 'A="b" c', "A=b\x00"])
def test_what_is_no_setting_is_none(line: str) -> None:
    ((number, words),) = settings_in(f"{line}\n")
    assert number == 1
    assert isinstance(words, str)


@pytest.mark.parametrize("line", ['A="open', "A='open", 'A="b" c', 'A="open # "half'])
def test_a_quote_that_does_not_end_takes_no_other_line_with_it(line: str) -> None:
    first, *others = settings_in(f"{line}\nB=c\nC=\"d\"\nE='f'\n")
    assert first == (1, "has a quote that does not end its value")
    assert others == [(2, ("B", "c")), (3, ("C", "d")), (4, ("E", "f"))]


@pytest.mark.slow
def test_a_quote_that_does_not_end_is_told_and_the_store_below_it_is_used(project: Path) -> None:
    (project / ".env").write_text('COLOUR=blue\nSHAPE="secret\nEVERTHINK_STORE=sqlite:///from-env.db\n')
    with Command(project, "serve", "agents", "--port", "0") as server:
        server.until(r"at (http://127\.0\.0\.1:\d+)")
        assert server.interrupt() == 0
    said = "\n".join(server.seen)
    assert "Line 2 of .env has a quote that does not end its value; it is left out." in said
    assert "secret" not in said
    assert (project / "from-env.db").exists()


@pytest.mark.slow
def test_a_folder_called_env_is_told(project: Path) -> None:
    (project / ".env").unlink()
    (project / ".env").mkdir()
    with Command(project, "inspect") as inspect:
        inspect.ended()
    assert inspect.seen[0] == ".env is a folder, not a file; no settings are read from it."


def test_nothing_happens_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    assert CliRunner().invoke(cli, ["chat", "--help"]).exit_code == 0
    assert dict(os.environ) == before
