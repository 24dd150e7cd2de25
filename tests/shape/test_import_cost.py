"""`import everthink` loads what every agent needs and nothing that only some do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .source import modules

pytestmark = pytest.mark.slow

HEAVY = [
    "anthropic",
    "asyncpg",
    "bashkit",
    "httpx2",
    "mcp",
    "obstore",
    "openai",
    "opentelemetry",
    "pydantic_ai",
    "quickjs_rs",
    "starlette",
    "uvicorn",
    "wasmtime",
]

# Ours, too: what runs agents comes with the first of them, a façade with who imports it.
LATER = [
    "chunks",
    "context.blocks",
    "door.admission",
    "guard.addresses",
    "guard.transport",
    "journal",
    "machines.port",
    "machines.sandbox",
    "mcp_endpoint",
    "mcp_server",
    "memory",
    "recovery",
    "runtime.actor",
    "sandbox.bash",
    "sandbox.javascript",
    "sandbox.port",
    "schedules.alarms",
    "schedules.phrase",
    "server",
    "session",
    "sqlite",
    "testing",
    "turn.loop",
    "wire",
]


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    script = "import sys, everthink\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


@pytest.mark.parametrize("package", HEAVY)
def test_importing_everthink_does_not_load(loaded: set[str], package: str) -> None:
    assert package not in loaded


@pytest.mark.parametrize("module", LATER)
def test_importing_everthink_does_not_load_what_comes_later(loaded: set[str], module: str) -> None:
    assert f"everthink.{module}" in {known.name for known in modules()}
    assert f"everthink.{module}" not in loaded
