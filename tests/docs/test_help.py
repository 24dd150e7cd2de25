"""What `everthink serve --help` says about processes is what the pages say."""

from __future__ import annotations

from click.testing import CliRunner

from everthink.cli.serve import command


def test_the_help_of_serve_says_what_one_process_and_a_second_one_do() -> None:
    said = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert "an agent lives in one process" in said
    assert "each agent has one owner at a time, and the other process answers 503 for it" in said
    assert "more machines" not in said
