"""Every promise of the lists in tests/contract/ has a test, or a note saying when it will."""

from __future__ import annotations

from pathlib import Path

import pytest

from .script import Ran, run

CASES = """
[later]
wire = "#3 On the wire"

[[section]]
title = "Chat"
left = { wire = ["2-3"] }
[section.cases]
1 = "One."
2 = "Two."
3 = "Three."
"""

TESTS = """
import pytest

pytestmark = pytest.mark.anyio

@pytest.mark.case(1)
async def test_one(): ...

@pytest.mark.case(*range(1, 3))
def test_both(): ...
"""


def cases(*arguments: str) -> Ran:
    return run("cases", *arguments)


def test_every_case_is_tested_or_left_for_later_and_the_index_is_fresh() -> None:
    checked = cases("--check")
    assert checked.returncode == 0, checked.stderr + checked.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests" / "contract").mkdir(parents=True)
    (tmp_path / "tests" / "contract" / "cases.toml").write_text(CASES)
    (tmp_path / "tests" / "test_chat.py").write_text(TESTS)
    return tmp_path


def test_the_index_maps_each_case_to_its_tests(project: Path) -> None:
    written = cases("--root", str(project))
    assert written.stdout == "3 cases: 2 tested, 1 left for later, 0 missing.\n"
    index = (project / "tests" / "contract" / "README.md").read_text()
    both = "[test_both](../test_chat.py)"
    assert f"| 1 | One. | [test_one](../test_chat.py)<br>{both} |  |" in index
    assert f"| 2 | Two. | {both} | #3 On the wire |" in index
    assert "| 3 | Three. |  | #3 On the wire |" in index
    assert cases("--check", "--root", str(project)).returncode == 0


def test_a_stale_index_fails_the_check(project: Path) -> None:
    cases("--root", str(project))
    (project / "tests" / "test_chat.py").write_text(TESTS.replace("test_one", "test_first"))
    checked = cases("--check", "--root", str(project))
    assert checked.returncode == 1
    assert "out of date" in checked.stderr


def test_a_case_that_nobody_tests_or_leaves_fails_the_check(project: Path) -> None:
    (project / "tests" / "contract" / "cases.toml").write_text(CASES + '4 = "Four."\n')
    cases("--root", str(project))
    checked = cases("--check", "--root", str(project))
    assert checked.returncode == 1
    assert "Case 4 has no test" in checked.stderr


@pytest.mark.parametrize(
    ("mark", "complaint"),
    [
        ("case(9)", "claims case 9, which does not exist"),
        ("case(number)", "test_chat.py:6: case() takes numbers"),
        ("case()", "test_chat.py:6: case() takes numbers"),
    ],
)
def test_a_claim_that_makes_no_sense_is_refused(project: Path, mark: str, complaint: str) -> None:
    (project / "tests" / "test_chat.py").write_text(TESTS.replace("case(1)", mark))
    written = cases("--root", str(project))
    assert written.returncode == 1
    assert complaint in written.stderr


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ('3 = "Three."', '5 = "Five."', "without gaps"),
        ("wire = [", "sea = [", "not in [later]"),
        ('"2-3"', '"2-4"', "leaves case 4, which it lacks"),
    ],
)
def test_a_broken_list_is_refused(project: Path, before: str, after: str, complaint: str) -> None:
    (project / "tests" / "contract" / "cases.toml").write_text(CASES.replace(before, after))
    assert complaint in cases("--root", str(project)).stderr


AGENT_CASES = """
[later]
plug = "#4 Pull the plug"

[[section]]
title = "Timers"
left = { plug = ["12"] }
[section.cases]
9 = "Nine."
12 = "Twelve."
"""


@pytest.fixture
def two_lists(project: Path) -> Path:
    (project / "tests" / "contract" / "agent_cases.toml").write_text(AGENT_CASES)
    (project / "tests" / "test_timers.py").write_text(
        "import pytest\n\n@pytest.mark.agent_case(9)\ndef test_nine(): ...\n"
    )
    return project


def test_a_second_list_has_numbers_and_marks_of_its_own(two_lists: Path) -> None:
    written = cases("--root", str(two_lists))
    assert written.stdout.splitlines() == [
        "3 cases: 2 tested, 1 left for later, 0 missing.",
        "2 agent cases: 1 tested, 1 left for later, 0 missing.",
    ]
    index = (two_lists / "tests" / "contract" / "README.md").read_text()
    assert "| A9 | Nine. | [test_nine](../test_timers.py) |  |" in index
    assert "| A12 | Twelve. |  | #4 Pull the plug |" in index
    assert cases("--check", "--root", str(two_lists)).returncode == 0


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("agent_case(9)", "agent_case(1)", "claims case A1, which does not exist"),
        ("agent_case(9)", "agent_case()", "agent_case() takes numbers"),
    ],
)
def test_a_claim_from_the_second_list_is_checked_against_it(
    two_lists: Path, before: str, after: str, complaint: str
) -> None:
    timers = two_lists / "tests" / "test_timers.py"
    timers.write_text(timers.read_text().replace(before, after))
    assert complaint in cases("--root", str(two_lists)).stderr


def test_the_second_list_may_have_gaps_but_its_numbers_go_up(two_lists: Path) -> None:
    listed = AGENT_CASES.replace("12", "7")
    (two_lists / "tests" / "contract" / "agent_cases.toml").write_text(listed)
    assert "agent_cases.toml: case numbers must go up" in cases("--root", str(two_lists)).stderr


def test_each_list_has_marks_and_a_letter_of_its_own(two_lists: Path) -> None:
    listed = AGENT_CASES.replace("9 =", "1 =").replace("12", "2")
    (two_lists / "tests" / "contract" / "memory_cases.toml").write_text(listed)
    (two_lists / "tests" / "test_memory.py").write_text(
        "import pytest\n\n@pytest.mark.memory_case(1)\ndef test_one(): ...\n"
    )
    written = cases("--root", str(two_lists))
    assert written.stdout.splitlines()[2] == "2 memory cases: 1 tested, 1 left for later, 0 missing."
    index = (two_lists / "tests" / "contract" / "README.md").read_text()
    assert "| M1 | Nine. | [test_one](../test_memory.py) |  |" in index
    assert "| A9 | Nine. | [test_nine](../test_timers.py) |  |" in index
