"""`everthink chat` asks a person what a tool asks, field by field, in a real process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.commands import Command

pytestmark = pytest.mark.slow

AGENT = '''
import json

from everthink import Think, ToolContext, tool
from everthink.models import port as model
from everthink.tools.question import Form, Question

TABLE = {
    "type": "object",
    "properties": {
        "guests": {"type": "integer", "title": "How many?", "minimum": 1, "maximum": 12, "default": 2},
        "where": {"enum": ["in", "out"], "enumNames": ["Inside", "On the terrace"]},
        "email": {"type": "string", "format": "email"},
        "remind": {"type": "boolean"},
    },
    "required": ["guests", "where"],
}
FORMS = {
    "book": {"table": Form("When\\x1b[31m do you come?", TABLE)},
    "sure": {"sure": Form("Are you sure?")},
    "pay": {"pay": Form("Please pay.", url="https://pay.example/1")},
    "plain": {"plain": Form("As usual?", {**TABLE, "required": ["guests"]})},
}


class Caller:
    name = "caller"
    continues = "prompt"

    async def stream(self, request):
        yield model.Opened()
        last = request.messages[-1]
        if isinstance(last, model.UserMessage):
            given = json.dumps({"what": last.content[0].text})
            yield model.ToolCallReady(f"c{len(request.messages)}", "ask", given)
            yield model.Finish("tool-calls")
            return
        yield model.TextStart("t")
        yield model.TextDelta("t", f"Told {last.content[0].output}")
        yield model.TextEnd("t")
        yield model.Finish("stop")


class Desk(Think):
    model = Caller()

    @tool
    async def ask(self, what: str, ctx: ToolContext) -> str:
        """Ask something."""
        if what == "now":
            forms = await ctx.ask(Question(FORMS["sure"], asks="old"), 30)
        elif ctx.answer is None:
            raise Question(FORMS[what], asks="Osteria")
        else:
            forms = ctx.answer.forms
        return "; ".join(f"{one.action} {json.dumps(one.content)}" for one in forms.values())
'''


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with an agent that asks."""
    project = tmp_path_factory.mktemp("desk")
    (project / "agents").mkdir()
    (project / "agents" / "desk.py").write_text(AGENT)
    with Command(project, "dev", "--port", "0", "--no-reload") as dev:
        yield dev.until(r"Open (http://127\.0\.0\.1:\d+)")[1]


def chatted(folder: Path, desk: str, room: str, *lines: str, options: tuple[str, ...] = ()) -> str:
    """What a person sees who says these lines in a pipe."""
    with Command(folder, "chat", f"desk/{room}", "--server", desk, *options) as chat:
        assert chat.process.stdin
        chat.process.stdin.write("".join(f"{line}\n" for line in lines))
        chat.process.stdin.close()
        assert chat.ended() == 0
    return "\n".join(chat.seen)


def test_fields_are_asked_for_one_after_the_other_until_they_are_right(tmp_path: Path, desk: str) -> None:
    seen = chatted(
        tmp_path, desk, "right", "book", "14", "4", "3", "terrace", "On the terrace", "ada", "", "y"
    )
    assert "Osteria asks: When\\x1b[31m do you come?" in seen  # written out, not obeyed
    for told in (
        "It is at most 12.",
        "Choose one: 1 to 2.",
        "This is no e-mail address.",
        "2 On the terrace",
    ):
        assert told in seen
    assert 'Told accept {"guests": 4, "where": "out", "remind": true}' in seen
    # What was answered is part of the conversation
    assert "? When\\x1b[31m do you come? guests=4, where='out', remind=True" in chatted(
        tmp_path, desk, "right", "/history"
    )


def test_an_empty_line_takes_the_default_or_declines_what_is_needed(tmp_path: Path, desk: str) -> None:
    assert "Told accept" in (seen := chatted(tmp_path, desk, "default", "book", "", "1", "", ""))
    assert 'Told accept {"guests": 2, "where": "in"}' in seen
    for room, lines in {"empty": ("", ""), "word": ("3", "/decline"), "end": ("3",)}.items():
        seen = chatted(tmp_path, desk, room, "book", *lines)
        assert "Told decline null" in seen
        assert "declined" in seen


def test_yes_and_no_and_addresses(tmp_path: Path, desk: str) -> None:
    assert "Told accept null" in chatted(tmp_path, desk, "yes", "sure", "y")
    assert "Told decline null" in chatted(tmp_path, desk, "no", "sure", "n")
    seen = chatted(tmp_path, desk, "pay", "pay", "y")
    assert "Go to pay.example: https://pay.example/1" in seen
    assert "Told accept null" in seen


def test_a_question_of_a_call_that_runs_is_asked_while_it_runs(tmp_path: Path, desk: str) -> None:
    seen = chatted(tmp_path, desk, "now", "now", "y", "sure", "y")
    assert "old asks: Are you sure?" in seen
    assert seen.count("Told accept null") == 2


def test_a_flag_says_yes_where_nothing_has_to_be_filled_in(tmp_path: Path, desk: str) -> None:
    yes = ("--yes",)
    assert "Told accept null" in chatted(tmp_path, desk, "flag-sure", "sure", options=yes)
    assert 'Told accept {"guests": 2}' in chatted(tmp_path, desk, "flag-plain", "plain", options=yes)
    assert "Told decline null" in chatted(tmp_path, desk, "flag-book", "book", options=yes)
    assert "Told decline null" in chatted(tmp_path, desk, "flag-pay", "pay", options=yes)
