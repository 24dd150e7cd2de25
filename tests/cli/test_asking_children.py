"""`everthink chat` shows what children ask a person, says who asks, and takes the answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.commands import Command

pytestmark = pytest.mark.slow

AGENTS = '''
from everthink import Think, agent_tool, client_tool, tool
from everthink.models.port import ToolMessage
from everthink.testing import ScriptedModel, calls, says
from everthink.tools.question import Form, Question


def once(name, words, **given):
    """A model that calls a tool, and says what came of it."""

    def play(request):
        results = [one for one in request.messages if isinstance(one, ToolMessage)]
        return says(f"{words}: {results[-1].content[-1].output}") if results else calls(name, **given)

    return ScriptedModel(play, repeat=True)


class Cleaner(Think):
    model = once("delete", "cleaned", what="files\\x1b[31m")

    @tool(needs_approval=True)
    async def delete(self, what: str) -> str:
        """Delete."""
        return "all deleted"


class Locator(Think):
    model = once("locate", "located", near="the river")

    def get_tools(self):
        return [client_tool("locate", "Where the person is.", {"type": "object", "properties": {}})]


class Clerk(Think):
    model = once("seats", "booked")

    @tool
    async def seats(self, ctx) -> str:
        """Ask how many."""
        if ctx.answer is None:
            schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
            raise Question({"seats": Form("How many?", schema)})
        return str(ctx.answer.forms["seats"].content)


class Foreman(Think):
    model = once("clean", "overseen", query="Clean up")
    clean = agent_tool(Cleaner, description="Cleans.", display_name="The cleaner")


class Boss(Think):
    clean = agent_tool(Cleaner, description="Cleans.", display_name="The cleaner")
    find = agent_tool(Locator, description="Finds.")
    book = agent_tool(Clerk, description="Books.")
    oversee = agent_tool(Foreman, description="Oversees.")

    def get_model(self):
        return ScriptedModel(self.play, repeat=True)

    @staticmethod
    def play(request):
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            return says(f"Told {last.content[-1].output}")
        return calls(last.content[0].text, query="Go")
'''


@pytest.fixture(scope="module")
def boss(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with an agent whose children ask."""
    project = tmp_path_factory.mktemp("boss")
    (project / "app.py").write_text(
        AGENTS.replace("self, ctx)", "self, ctx: ToolContext)").replace(
            "import Think, ", "import App, Think, ToolContext, "
        )
        + "\n\napp = App(Boss)\n"
    )
    with Command(project, "dev", "app.py", "--port", "0", "--no-reload") as dev:
        yield dev.until(r"Open (http://127\.0\.0\.1:\d+)")[1]


def chatted(folder: Path, boss: str, room: str, *lines: str, options: tuple[str, ...] = ()) -> str:
    """What a person sees who says these lines in a pipe."""
    with Command(folder, "chat", f"boss/{room}", "--server", boss, *options) as chat:
        assert chat.process.stdin
        chat.process.stdin.write("".join(f"{line}\n" for line in lines))
        chat.process.stdin.close()
        assert chat.ended() == 0
    return "\n".join(chat.seen)


def test_a_child_that_asks_for_a_yes_is_shown_with_its_call_and_gets_it(tmp_path: Path, boss: str) -> None:
    seen = chatted(tmp_path, boss, "yes", "clean", "y")
    assert "The cleaner wants to use a tool:" in seen
    assert "→ delete(what='files\\x1b[31m')" in seen  # written out, not obeyed
    assert "Told cleaned: all deleted" in seen
    assert "denied" not in seen


def test_no_answer_is_a_no_and_a_flag_a_yes(tmp_path: Path, boss: str) -> None:
    seen = chatted(tmp_path, boss, "no", "clean")
    assert "no answer, so no" in seen
    assert "Told cleaned: all deleted" not in seen
    assert "Told cleaned: all deleted" in chatted(tmp_path, boss, "flag", options=("-m", "clean", "--yes"))


def test_a_child_that_asks_for_more_gets_its_form_filled_in(tmp_path: Path, boss: str) -> None:
    seen = chatted(tmp_path, boss, "form", "book", "5")
    assert "Clerk asks you something:" in seen
    assert "Told booked: {'n': 5}" in seen


def test_a_child_that_waits_for_a_client_is_answered_from_the_terminal(tmp_path: Path, boss: str) -> None:
    seen = chatted(tmp_path, boss, "client", "find", "Lisbon")
    assert "Locator waits for what a client does:" in seen
    assert "→ locate(near='the river')" in seen
    assert "Told located: Lisbon" in seen


def test_a_child_of_a_child_is_told_with_those_above_it(tmp_path: Path, boss: str) -> None:
    seen = chatted(tmp_path, boss, "deep", "oversee", "y")
    assert "Foreman → The cleaner wants to use a tool:" in seen
    assert "Told overseen: cleaned: all deleted" in seen


def test_who_comes_back_is_asked_and_shown_the_rest(tmp_path: Path, boss: str) -> None:
    with Command(tmp_path, "chat", "boss/later", "--server", boss) as chat:
        assert chat.process.stdin
        chat.process.stdin.write("clean\n")
        chat.process.stdin.flush()
        chat.until("wants to use a tool")
        chat.process.kill()
    assert "Told cleaned: all deleted" in chatted(tmp_path, boss, "later", "y")


def test_of_two_terminals_the_first_answer_counts(tmp_path: Path, boss: str) -> None:
    with (
        Command(tmp_path, "chat", "boss/two", "--server", boss) as one,
        Command(tmp_path, "chat", "boss/two", "--server", boss) as two,
    ):
        assert one.process.stdin
        assert two.process.stdin
        two.process.stdin.write("/history\n/nothing\n")
        two.process.stdin.flush()
        two.until("There is no /nothing")
        one.process.stdin.write("clean\n")
        one.process.stdin.flush()
        two.until("A child asks something. An empty line shows it.")
        one.until("wants to use a tool")
        two.process.stdin.write("\n")
        two.process.stdin.flush()
        two.until("wants to use a tool")
        two.process.stdin.write("y\n")
        two.process.stdin.close()
        two.until("Told cleaned: all deleted")
        one.process.stdin.write("n\n")
        one.process.stdin.close()
        one.until("It was answered already")
        assert (one.ended(), two.ended()) == (0, 0)
        assert any("Told cleaned: all deleted" in line for line in one.seen)
