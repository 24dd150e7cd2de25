"""Manifests, rights and snapshots: values."""

from __future__ import annotations

import math
from typing import Any

import pytest

from everthink.errors import AgentError, ExtensionError, InvalidSettings
from everthink.extensions import ContextPermissions, Extension, Manifest, Permissions
from everthink.extensions.queries import as_json
from everthink.extensions.snapshots import json_safe
from everthink.extensions.values import as_manifest, beyond, capped

FULL = {
    "name": "word-tools",
    "version": "1.0.0",
    "description": "Words.",
    "permissions": {
        "network": ["API.example.com", "*.example.org", "127.0.0.1:8080"],
        "workspace": "read-write",
        "context": {"read": "all", "write": "own"},
        "messages": "read",
        "session": {"sendMessage": True, "metadata": True},
        "storage": True,
    },
    "tools": ["count"],
    "hooks": ["beforeTurn", "on_chunk"],
    "context": [{"label": "notes", "description": "Notes", "type": "readonly", "maxTokens": 100}],
}


def test_a_manifest_is_read_with_the_names_of_javascript_and_of_python() -> None:
    manifest = as_manifest(FULL)

    assert manifest.permissions.network == ("api.example.com", "*.example.org", "127.0.0.1:8080")
    assert manifest.permissions.session.send_message is True
    assert manifest.hooks == ("before_turn", "on_chunk")
    assert (manifest.prefix, manifest.labels) == ("word_tools", ("word_tools_notes",))
    assert manifest.context[0].max_tokens == 100


def test_what_is_stored_of_a_manifest_is_the_manifest() -> None:
    for manifest in (as_manifest(FULL), Manifest(name="a", version="1")):
        assert as_manifest(as_json(manifest)) == manifest


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": 7}, "it is a line of 1 to 40"),
        ({"name": "x" * 41}, "it is a line of 1 to 40"),
        ({"version": ""}, "version is ''"),
        ({"version": None}, "version is None"),
        ({"permisions": {}}, "Did you mean 'permissions'"),
        ({"permissions": {"files": "read"}}, "has no field 'files'"),
        ({"permissions": {"workspace": "write"}}, "Did you mean 'read-write'"),
        ({"permissions": {"workspace": True}}, "It takes 'none', 'read', 'read-write'"),
        ({"permissions": {"network": "example.com"}}, "It takes a list of texts"),
        ({"permissions": {"network": True}}, "It takes a list of texts"),
        ({"permissions": {"network": ["*"]}}, "is not a host"),
        ({"permissions": {"network": ["https://example.com/"]}}, "is not a host"),
        ({"permissions": {"context": {"write": "all"}}}, "context.write is 'all'"),
        ({"permissions": {"session": {"sendMessage": "yes"}}}, "session.send_message is 'yes'"),
        ({"permissions": {"storage": 1}}, "storage is 1"),
        ({"hooks": ["beforeTurm"]}, "Did you mean 'before_turn'"),
        ({"hooks": ["beforeStep"]}, "Extensions have no hook 'before_step'"),
        ({"tools": "count"}, "It takes a list of texts"),
        ({"context": [{"label": "…"}]}, "it has no letter and no digit"),
        ({"context": [{"label": "a"}, {"label": "a"}]}, "labels of their own"),
        ({"context": [{"label": "a", "type": "secret"}]}, "context.type is 'secret'"),
        ({"context": [{"label": "a", "maxTokens": 0}]}, "context.max_tokens is 0"),
        ({"context": {"label": "a"}}, "It takes"),
    ],
)
def test_what_is_not_understood_in_a_manifest_is_refused(change: Any, said: str) -> None:
    with pytest.raises(AgentError) as raised:
        as_manifest({**FULL, **change})

    assert said in str(raised.value)


def test_an_extension_has_a_source_of_some_length_in_a_known_language() -> None:
    for source, language, said in (
        ("  ", "javascript", "has no source"),
        ("x" * 500_001, "javascript", "may have 500,000"),
        ("({ tools: {} }) // \0", "javascript", "characters that are none"),
        ("({ tools: {} }) // \ud800", "javascript", "characters that are none"),
        ("x", "ruby", "It takes 'javascript', 'typescript', 'python'"),
    ):
        with pytest.raises((ExtensionError, InvalidSettings), match=said):
            Extension({"name": "a", "version": "1"}, source, language)  # pyright: ignore[reportArgumentType]


# --- what is granted is never more than either


def test_nothing_is_allowed_that_is_not_named() -> None:
    everything = as_manifest(FULL).permissions

    assert capped(everything, Permissions()) == Permissions()
    assert capped(Permissions(), everything) == Permissions()
    assert capped(everything, everything) == everything
    assert (Permissions().is_empty, Permissions().is_harmless) == (True, True)
    assert (everything.is_empty, everything.is_harmless) == (False, False)


@pytest.mark.parametrize(
    ("asked", "allowed", "granted"),
    [
        (["api.example.com"], ["*.example.com"], ["api.example.com"]),
        (["example.com"], ["*.example.com"], []),
        (["*.api.example.com"], ["*.example.com"], ["*.api.example.com"]),
        (["*.example.com"], ["api.example.com"], []),
        (["*.example.com"], ["*.example.com"], ["*.example.com"]),
        (["*.com"], ["*.example.com"], []),
        (["example.com.evil.test"], ["example.com"], []),
        (["127.0.0.1:80"], ["*.example.com"], []),
        (["127.0.0.1:80"], ["127.0.0.1:80"], ["127.0.0.1:80"]),
        (["api.example.com", "evil.test"], ["*.example.com"], ["api.example.com"]),
    ],
)
def test_of_the_hosts_those_are_granted_that_are_allowed(
    asked: list[str], allowed: list[str], granted: list[str]
) -> None:
    found = capped(Permissions(network=tuple(asked)), Permissions(network=tuple(allowed)))

    assert found.network == tuple(granted)
    assert beyond(Permissions(network=tuple(asked)), Permissions(network=tuple(allowed))) is (
        granted != asked
    )


@pytest.mark.parametrize(
    ("asked", "allowed", "granted"),
    [
        ("all", "all", "all"),
        ("all", ("a",), ("a",)),
        ("all", "own", "own"),
        ("own", "all", "own"),
        (("a", "b"), ("b", "c"), ("b",)),
        ("own", ("a",), ()),
        (("a",), "own", ()),
        ((), "all", ()),
    ],
)
def test_of_the_blocks_those_are_granted_that_are_allowed(asked: Any, allowed: Any, granted: Any) -> None:
    found = capped(
        Permissions(context=ContextPermissions(read=asked)),
        Permissions(context=ContextPermissions(read=allowed)),
    )

    assert found.context.read == granted


# --- snapshots


def test_a_snapshot_is_plain_json() -> None:
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle

    assert json_safe({"a": (1, 2.5, True, None, "x"), 3: "y"}) == {"a": [1, 2.5, True, None, "x"], "3": "y"}
    assert json_safe({"f": len, "o": object(), "kept": 1}) == {"kept": 1}
    assert json_safe([len, 1]) == [None, 1]
    assert json_safe(2**60) == str(2**60)
    assert json_safe([math.nan, math.inf]) == [None, None]
    assert json_safe(object()) is None
    assert json_safe(ValueError("bad"))["name"] == "ValueError"
    assert json_safe("\ud800") == "?"
    deep = json_safe(cycle)
    for _ in range(6):
        deep = deep["self"]
    assert deep == {}


def test_what_lies_deeper_than_six_levels_is_cut() -> None:
    value: Any = "x"
    for _ in range(8):
        value = {"a": value}

    assert json_safe(value) == {"a": {"a": {"a": {"a": {"a": {"a": {}}}}}}}
