"""`import everthink` loads what every agent needs and nothing that only some do."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = [
    "anthropic",
    "asyncpg",
    "httpx2",
    "mcp",
    "obstore",
    "openai",
    "opentelemetry",
    "pydantic_ai",
    "starlette",
    "uvicorn",
]


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    script = "import sys, everthink\nprint(*{name.partition('.')[0] for name in sys.modules})"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


@pytest.mark.parametrize("package", HEAVY)
def test_importing_everthink_does_not_load(loaded: set[str], package: str) -> None:
    assert package not in loaded
