"""What strangers choose cannot forge a line of the log, flood it, or carry a secret into it."""

from __future__ import annotations

import ast
import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everthink import Think
from everthink.logs import CLEAN, LOGGERS, LONGEST_VALUE, MOST_KINDS, MOST_OF_A_KIND, Sparing, clean
from everthink.observe.events import CHANNELS
from everthink.serving.process import _Plain  # pyright: ignore[reportPrivateUsage]

from ..shape.source import modules
from ..support.server import open_app, served


class Desk(Think):
    model = "demo"

    def on_message(self, connection: Any, message: Any) -> None:
        raise ValueError(f"cannot read {message}")


FORGED = "room\nERROR everything was deleted\r\x1b[2K\x1b]0;owned\x07\u202egnp.exe\x9b31m\u2028next"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a handler of an application's own writes of one of our loggers."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("everthink.server")
    logger.addHandler(handler)
    yield out
    logger.removeHandler(handler)


@pytest.mark.slow
def test_every_logger_of_ours_is_guarded() -> None:
    named = {
        node.args[0].value
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and ast.unparse(node.func) == "logging.getLogger"
    }
    ours = {str(name).removeprefix("everthink.") for name in named if str(name).startswith("everthink")}
    assert ours <= set(LOGGERS)
    assert all(CLEAN in logging.getLogger(f"everthink.{name}").filters for name in LOGGERS)
    assert not {channel.removeprefix("agents:") for channel in CHANNELS} & {"", "everthink"}


@pytest.mark.parametrize("form", ["%s is refused", "%r is refused", "%.500s is refused"])
def test_a_value_cannot_begin_a_line_or_move_the_cursor(written: io.StringIO, form: str) -> None:
    logging.getLogger("everthink.server").warning(form, FORGED)
    text = written.getvalue()
    assert text.count("\n") == 1
    assert text.startswith("WARNING ")
    for sign in "\r\x1b\x07\x9b\u202e\u2028":
        assert sign not in text
    assert r"\x1b[2K" in text.replace(r"\\", "\\")


def test_values_are_masked_and_cut(written: io.StringIO) -> None:
    log = logging.getLogger("everthink.server")
    log.warning("%s and %s", ValueError("postgresql://app:hunter2@db/x"), "x " * 100_000)
    text = written.getvalue()
    assert "hunter2" not in text
    assert len(text) < LONGEST_VALUE + 200
    assert "characters)" in text


def test_numbers_stay_numbers(written: io.StringIO) -> None:
    logging.getLogger("everthink.server").warning("%d of %g", 3, 0.5)
    assert written.getvalue() == "WARNING 3 of 0.5\n"
    logging.getLogger("everthink.server").warning("%(who)s", {"who": "a\nb"})
    assert written.getvalue().endswith("WARNING a\\nb\n")


def test_the_text_of_an_exception_cannot_look_like_a_line_and_holds_no_key(written: io.StringIO) -> None:
    def fail(token: str) -> None:
        raise RuntimeError(f"bad key {token}\nERROR forged\x1b[31m")

    try:
        fail("sk-proj-abcdefgh12345678")
    except RuntimeError:
        logging.getLogger("everthink.server").exception("it failed")
    first, *rest = written.getvalue().splitlines()
    assert first == "ERROR it failed"
    assert all(line.startswith("  ") for line in rest)
    text = "\n".join(rest)
    assert "RuntimeError: bad key sk-***" in text
    assert "ERROR forged\\x1b[31m" in text
    assert "in fail" in text


def test_an_endless_traceback_is_bounded(written: io.StringIO) -> None:
    try:
        raise RuntimeError("\n".join(["line"] * 5000) + "\n" + "x" * 1_000_000)
    except RuntimeError:
        logging.getLogger("everthink.server").exception("it failed")
    text = written.getvalue()
    assert len(text) < 20_000
    assert "lines are left out" in text


def test_foreign_lines_in_our_own_handler_are_indented() -> None:
    record = logging.LogRecord(
        "uvicorn.error", logging.ERROR, "", 1, "one\nERROR two\x1b[0m %s", ("k\nl",), None
    )
    CLEAN.filter(record)
    assert _Plain("%(levelname)s %(message)s").format(record) == "ERROR one\n  ERROR two\\x1b[0m k\\nl"


@pytest.mark.parametrize(
    ("args", "hidden"),
    [
        (("1.2.3.4:5", "GET", "/agents/a/b?token=abcdef", "1.1", 200), "abcdef"),
        (("1.2.3.4\x1b[31m:5", "GET", "/a\n/b", "1.1", 404), "\x1b"),
    ],
)
def test_a_line_of_the_access_log_is_one_line_without_query(args: tuple[Any, ...], hidden: str) -> None:
    record = logging.LogRecord("uvicorn.access", logging.INFO, "", 1, '%s - "%s %s HTTP/%s" %d', args, None)
    CLEAN.filter(record)
    said = _Plain("%(message)s").format(record)
    assert hidden not in said
    assert "\n" not in said


# --- floods


def test_a_flood_is_counted_instead_of_written() -> None:
    at = 0.0
    spare = Sparing(most=3, seconds=60, now=lambda: at)
    said: list[str] = []
    for number in range(1000):
        record = logging.LogRecord("x", logging.WARNING, "", 1, "%s is refused", (f"path-{number}",), None)
        if spare.filter(record):
            said.append(record.getMessage())
    assert said == ["path-0 is refused", "path-1 is refused", "path-2 is refused"]
    # other lines are not held up by it, nor what somebody asked for with a lower level
    asked_for = [logging.LogRecord("x", logging.INFO, "", 1, "%s is refused", ("y",), None) for _ in range(9)]
    assert all(map(spare.filter, asked_for))
    assert spare.filter(logging.LogRecord("x", logging.WARNING, "", 1, "something else", (), None))
    at = 61.0
    later = logging.LogRecord("x", logging.WARNING, "", 1, "%s is refused", ("again",), None)
    assert spare.filter(later)
    assert later.getMessage() == "(997 lines like the next were left out.) again is refused"


@pytest.mark.anyio
async def test_a_client_that_is_refused_again_and_again_does_not_fill_the_log(
    tmp_path: Path, written: io.StringIO
) -> None:
    async with served(open_app(tmp_path, Desk)) as server:
        for number in range(MOST_OF_A_KIND + 50):
            assert (await server.http(f"/agents/nobody-{number}%0aERROR/room")).status == 400
    lines = written.getvalue().splitlines()
    assert len(lines) == MOST_OF_A_KIND
    assert all(line.startswith("WARNING /agents/nobody-") for line in lines)


@pytest.mark.anyio
async def test_a_handler_of_ours_counts_a_line_once_and_those_of_others_too() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(CLEAN)
    loggers = [logging.getLogger("everthink.server"), logging.getLogger("somebody.else")]
    for logger in loggers:
        logger.addHandler(handler)
        for number in range(MOST_OF_A_KIND + 50):
            logger.warning("refused %d: %s", number, "a\nb")
        logger.removeHandler(handler)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2 * MOST_OF_A_KIND
    assert lines[-1] == f"refused {MOST_OF_A_KIND - 1}: a\\nb"


@pytest.mark.anyio
async def test_a_frame_that_breaks_a_hook_is_logged_a_bounded_number_of_times(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(open_app(tmp_path, Desk)) as server:
        tab = await server.connect(Desk)
        for _ in range(MOST_OF_A_KIND + 50):
            await tab.send("anything\nERROR forged")
        await tab.settled()
    raised = [record for record in caplog.records if record.exc_info]
    assert len(raised) == MOST_OF_A_KIND
    assert "\nERROR forged" not in caplog.text


def test_what_a_flood_of_kinds_leaves_behind_is_bounded() -> None:
    spare = Sparing(most=1, seconds=60, now=lambda: 0.0)
    for number in range(10 * MOST_KINDS):
        spare.allows(f"kind {number}")
    assert len(spare._kinds) <= MOST_KINDS  # pyright: ignore[reportPrivateUsage]


def test_a_value_is_cleaned_by_hand_as_well() -> None:
    assert clean("a\nb") == "a\\nb"
    assert clean("token=abcdef") == "token=***"
