"""A script says what it means, or is told what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everthink.errors import AgentError
from everthink.testing.crashtest.sample import SCRIPT
from everthink.testing.crashtest.script import (
    Advance,
    AnswerTool,
    Approve,
    Regenerate,
    Say,
    Schedule,
    Script,
    Submit,
    Wait,
    read_script,
    script_from,
)

WHOLE = """
room: kitchen
client_tools:
  - {name: locate, description: Where you are., parameters: {type: object}}
steps:
  - say: Hello
  - {say: no, wait: accepted}
  - answer_tool: {name: locate, output: 1.10}
  - answer_tool: {name: locate, error: nobody knows}
  - approve: yes
  - approve: {name: book, approved: "false"}
  - submit: {text: Work., key: k}
  - submit: Work again.
  - schedule: {in: 1.5, prompt: Wake up.}
  - schedule: {in: 60, call: remind, with: {at: noon}}
  - advance: 60
  - regenerate: true
  - wait: idle
"""


def test_every_step_is_read_and_scalars_stay_text(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text(WHOLE)
    assert read_script(tmp_path / "script.yaml") == Script(
        (
            Say("Hello"),
            Say("no", "accepted"),
            AnswerTool("locate", "1.10"),
            AnswerTool("locate", "nobody knows", is_error=True),
            Approve(True),
            Approve(False, "book"),
            Submit("Work.", "k"),
            Submit("Work again.", "step 8"),
            Schedule(1.5, "Wake up."),
            Schedule(60.0, None, "remind", {"at": "noon"}),
            Advance(60.0),
            Regenerate(),
            Wait(),
        ),
        [{"name": "locate", "description": "Where you are.", "parameters": {"type": "object"}}],
        "kitchen",
    )


def test_a_list_of_steps_is_a_script() -> None:
    assert script_from([{"say": "Hello"}]) == Script((Say("Hello"),))


def test_the_sample_has_what_a_crash_could_spoil() -> None:
    kinds = {type(step) for step in read_script(SCRIPT).steps}
    assert kinds == {Say, AnswerTool, Approve, Submit, Schedule, Advance, Regenerate}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("Hello", "is no list of steps"),
        ({"steps": []}, "has no steps"),
        ({"steps": [{"say": "a"}], "rooms": "b"}, "rooms means nothing here"),
        ({"steps": [{"say": "a"}], "client_tools": "locate"}, "client_tools is no list"),
        (["say"], "step 1 is no mapping"),
        ([{"say": "a"}, {"shout": "b"}], "step 2: there is no step 'shout'"),
        ([{"say": "a", "approve": "true"}], "step 1 does more than one thing: say, approve"),
        ([{"say": ""}], "step 1: say needs a text"),
        ([{"say": "a", "wait": "long"}], "waits until `idle` or until `accepted`, not 'long'"),
        ([{"approve": "true", "wait": "accepted"}], "only say and submit can be left to themselves"),
        ([{"approve": "maybe"}], "'maybe' is neither true nor false"),
        ([{"answer_tool": "locate"}], "answer_tool needs a name and an output"),
        ([{"answer_tool": {"output": "x"}}], "name needs a text"),
        ([{"schedule": {"in": "5"}}], "a prompt or a call, one of them"),
        ([{"schedule": {"in": "5", "prompt": "a", "call": "b"}}], "a prompt or a call, one of them"),
        ([{"schedule": {"in": "soon", "prompt": "a"}}], "'soon' is no number of seconds"),
        ([{"advance": "-1"}], "'-1' is no number of seconds"),
        ([{"regenerate": "false"}], "write `regenerate: true`"),
        ([{"wait": "5"}], "wait until the agent is `idle`, not '5'"),
    ],
)
def test_what_makes_no_sense_is_named(value: Any, told: str) -> None:
    with pytest.raises(AgentError) as error:
        script_from(value, name="a.yaml")
    assert told in str(error.value)
    assert "a.yaml" in str(error.value)


def test_a_file_that_is_no_script_is_told(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match=r"nowhere\.yaml cannot be read: No such file"):
        read_script(tmp_path / "nowhere.yaml")
    (tmp_path / "broken.yaml").write_text("- say: [")
    with pytest.raises(AgentError, match=r"broken\.yaml is not YAML"):
        read_script(tmp_path / "broken.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(AgentError, match=r"binary\.yaml cannot be read"):
        read_script(tmp_path / "binary.yaml")


def test_nothing_in_a_script_is_run(tmp_path: Path) -> None:
    (tmp_path / "evil.yaml").write_text("- say: !!python/object/apply:os.system ['exit 1']")
    with pytest.raises(AgentError):
        read_script(tmp_path / "evil.yaml")
