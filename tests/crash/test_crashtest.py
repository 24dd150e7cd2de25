"""The strongest test we have, on ourselves: a sample of all crash points. `make crashtest` plays them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everthink.errors import AgentError
from everthink.testing.crashtest import (
    CrashTest,
    Cut,
    Point,
    Report,
    Script,
    Verdict,
    choose,
    points_of,
    read_script,
)
from everthink.testing.crashtest.runner import cut_from
from everthink.testing.crashtest.sample import FAMILY_SCRIPT, SCRIPT
from everthink.testing.crashtest.script import Say

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
SAMPLE = "everthink.testing.crashtest.sample:"
ONE_QUESTION = Script((Say("Is it warm in Oslo, and when is the train?"),))
DELEGATED = Script((Say("And a room on the way back."),))
JOBS = 2
PATIENCE = 120.0
"""Seconds that a step may take: processes start slowly on a machine that others use."""


def told(verdicts: list[Verdict]) -> str:
    """Failures, for whoever reads the test's output."""
    lines = [f"{v.point} {v.step} {v.cut}: {[f.what for f in v.failures]}\n{v.log}" for v in verdicts]
    return "\n".join(lines)


async def sampled(
    agent: str, count: int, *, store: str = "sqlite", again: Point = (), script: Path = SCRIPT
) -> Report:
    test = CrashTest(SAMPLE + agent, read_script(script), store=store, again=again, patience=PATIENCE)
    commits = await test.rehearse()
    assert commits > 80
    return await test.run(choose(f"sample:{count}", commits), jobs=JOBS)


async def test_nobody_notices_a_crash_on_sqlite() -> None:
    report = await sampled("Traveller", 16)
    assert not report.of("failed"), told(report.of("failed"))
    assert len(report.of("passed")) >= 14


async def test_nobody_notices_a_crash_on_postgresql(postgres_url: str) -> None:
    report = await sampled("Traveller", 6, store=postgres_url.partition("?")[0])
    assert not report.of("failed"), told(report.of("failed"))
    assert "://" not in report.to_json()["store"]
    assert len(report.of("passed")) >= 5


async def test_nobody_notices_with_a_model_that_must_be_asked_to_go_on() -> None:
    report = await sampled("AskedTraveller", 6)
    assert not report.of("failed"), told(report.of("failed"))
    assert len(report.of("passed")) >= 5


async def test_nobody_notices_three_crashes_in_a_row() -> None:
    report = await sampled("Traveller", 6, again=(Cut(2, "after"), Cut(1, "before")))
    assert not report.of("failed"), told(report.of("failed"))
    assert all(len(verdict.point) == 3 for verdict in report.verdicts)


async def test_nobody_notices_a_crash_while_two_children_work_on_sqlite() -> None:
    report = await sampled("Agency", 12, script=FAMILY_SCRIPT)
    assert not report.of("failed"), told(report.of("failed"))
    assert len(report.of("passed")) >= 11


async def test_nobody_notices_a_crash_while_two_children_work_on_postgresql(postgres_url: str) -> None:
    report = await sampled("Agency", 4, store=postgres_url.partition("?")[0], script=FAMILY_SCRIPT)
    assert not report.of("failed"), told(report.of("failed"))
    assert len(report.of("passed")) >= 3


async def test_nobody_notices_with_children_that_must_be_asked_to_go_on() -> None:
    report = await sampled("AskedAgency", 4, script=FAMILY_SCRIPT)
    assert not report.of("failed"), told(report.of("failed"))
    assert len(report.of("passed")) >= 3


async def test_nobody_notices_two_crashes_while_two_children_work() -> None:
    report = await sampled("Agency", 4, again=(Cut(3, "after"),), script=FAMILY_SCRIPT)
    assert not report.of("failed"), told(report.of("failed"))
    assert all(len(verdict.point) == 2 for verdict in report.verdicts)


# --- it would be noticed


async def rehearsed(agent: str, script: Script = ONE_QUESTION) -> CrashTest:
    test = CrashTest(agent, script, home=ROOT, patience=PATIENCE)
    await test.rehearse()
    return test


def commit_of(test: CrashTest, *writes: str, number: int = 0) -> int:
    """The number of the commit that does this."""
    found = [c["commit"] for c in test.reference.commits if set(writes) <= set(c["writes"])]
    return int(found[number])


@pytest.mark.parametrize(
    "agent", ["everthink.testing.crashtest.sample:Traveller", "tests.crash.spoiled:Twice"]
)
async def test_a_tool_that_acts_twice_is_caught_and_one_that_is_reported_is_not(agent: str) -> None:
    test = await rehearsed(agent)
    # The tool has acted, and the process dies before that is written down.
    verdict = await test.at((Cut(commit_of(test, "update calls"), "before"),))
    assert "say" in verdict.step
    if agent.endswith("Twice"):
        assert verdict.status == "failed"
        assert ("effect", "'weather Oslo' happened 2 times, 1 more than without a crash") in [
            (failure.kind, failure.what) for failure in verdict.failures
        ]
    else:
        assert verdict.status == "passed", told([verdict])


@pytest.mark.parametrize(
    "agent", ["everthink.testing.crashtest.sample:Agency", "tests.crash.spoiled:HastyAgency"]
)
async def test_a_child_that_acts_twice_is_caught_and_one_that_is_reported_is_not(agent: str) -> None:
    test = await rehearsed(agent, DELEGATED)
    # The child's tool has acted, and the process dies before that is written down.
    verdict = await test.at((Cut(settled_below(test), "before"),))
    assert is_settled_below(verdict.cut or {})
    if agent.endswith("HastyAgency"):
        assert [(failure.kind, failure.what) for failure in verdict.failures] == [
            ("effect", "'reserve 1 nights' happened 2 times, 1 more than without a crash")
        ]
    else:
        assert verdict.status == "passed", told([verdict])


async def test_a_child_that_is_made_anew_after_a_crash_is_caught() -> None:
    test = await rehearsed("tests.crash.spoiled:ForgetfulAgency", DELEGATED)
    assert [member.agent for member in test.reference.family] == ["Innkeeper 1"]
    verdict = await test.at((Cut(settled_below(test), "after"),))
    assert is_settled_below(verdict.cut or {})
    assert ("child", "Innkeeper 2 is one too many") in [
        (failure.kind, failure.what) for failure in verdict.failures
    ]


def settled_below(test: CrashTest) -> int:
    """The number of the commit with which a child settles its call."""
    return next(int(commit["commit"]) for commit in test.reference.commits if is_settled_below(commit))


def is_settled_below(commit: dict[str, Any]) -> bool:
    return "/sub/" in (commit["agent"] or "") and "update calls" in commit["writes"]


async def test_an_answer_that_is_not_finished_is_caught() -> None:
    test = await rehearsed("tests.crash.spoiled:GivesUp")
    verdict = await test.at((Cut(commit_of(test, "insert segments", number=-6), "after"),))
    assert verdict.status == "failed"
    kinds = {failure.kind for failure in verdict.failures}
    assert {"transcript", "turn"} <= kinds
    assert verdict.to_json()["writes"] == ["insert segments"]


async def test_a_point_beyond_the_end_is_not_reached() -> None:
    test = await rehearsed("everthink.testing.crashtest.sample:Traveller")
    verdict = await test.at((Cut(10_000, "before"),))
    assert (verdict.status, verdict.cut, verdict.step) == ("not reached", None, "")


async def test_an_agent_that_never_says_the_same_cannot_be_tested() -> None:
    with pytest.raises(AgentError) as error:
        await rehearsed("tests.crash.spoiled:Moody")
    assert "answers differently each time: message 2 has" in error.value.what
    assert "decides from the prompt alone" in error.value.next_step


async def test_what_a_provider_would_refuse_is_caught() -> None:
    with pytest.raises(AgentError) as error:
        await rehearsed("tests.crash.spoiled:Speechless")
    assert "does not get through the script even without a crash" in error.value.what
    assert "messages[0] is an empty user message" in error.value.what


@pytest.mark.parametrize(
    ("agent", "what"),
    [
        ("nowhere:Agent", "nowhere:Agent cannot be imported: No module named 'nowhere'"),
        ("tests.crash.spoiled:Nobody", "tests.crash.spoiled:Nobody is no agent class"),
        ("tests.crash.spoiled:effect", "tests.crash.spoiled:effect is no agent class"),
    ],
)
async def test_an_agent_that_is_not_there_is_told(agent: str, what: str) -> None:
    with pytest.raises(AgentError) as error:
        await rehearsed(agent)
    assert what in str(error.value)


def test_points_are_chosen() -> None:
    every = points_of(3)
    assert list(map(str, (cut for (cut,) in every))) == [
        "1:before",
        "1:after",
        "2:before",
        "2:after",
        "3:before",
        "3:after",
    ]
    assert choose("all", 3) == every
    assert choose("sample:2", 3) == [every[0], every[3]]
    assert choose("sample:100", 3) == every
    assert choose("2, 7:after", 3) == [every[2], every[3], (Cut(7, "after"),)]
    assert cut_from("7") == Cut(7, "before")


@pytest.mark.parametrize("asked", ["", "some", "sample", "sample:0", "0", "3:later", "1,,2", "-1"])
def test_points_that_are_none_are_told(asked: str) -> None:
    with pytest.raises(AgentError, match="names no points"):
        choose(asked, 10)


def test_an_agent_or_a_store_that_is_none_is_told() -> None:
    with pytest.raises(AgentError, match="names no agent"):
        CrashTest("shop.agents", ONE_QUESTION)
    with pytest.raises(AgentError, match="no store to test with"):
        CrashTest("shop:Agent", ONE_QUESTION, store="sqlite:///mine.db")
