"""What we rely on in the SDK and nobody promises: names, parameters, the order of a flow."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import subprocess
import sys
from typing import Any

import httpx2
import mcp_types
import pytest
from mcp.client.auth import OAuthClientProvider, oauth2, utils
from mcp.client.auth.oauth2 import OAuthContext, PKCEParameters
from mcp.shared import auth

from everthink.oauth.flow import DurableOAuth

# Private names of `OAuthClientProvider` that `DurableOAuth` calls or takes the place of.
METHODS = {
    "_auth_flow": ["request"],
    "_initialize": [],
    "_perform_authorization": [],
    "_handle_refresh_response": ["response"],
    "_refresh_token": [],
    "_exchange_token_authorization_code": ["auth_code", "code_verifier"],
    "_add_auth_header": ["request"],
}
# Public ones of its context, which keeps time with `time.time()` and is given our clock.
CONTEXT = {
    "update_token_expiry": ["token"],
    "is_token_valid": [],
    "can_refresh_token": [],
    "clear_tokens": [],
    "prepare_token_auth": ["data", "headers"],
    "should_include_resource_param": ["protocol_version"],
    "get_resource_url": [],
    "get_authorization_base_url": ["server_url"],
}
FIELDS = {
    "server_url",
    "client_metadata",
    "storage",
    "redirect_handler",
    "callback_handler",
    "protected_resource_metadata",
    "oauth_metadata",
    "auth_server_url",
    "protocol_version",
    "client_info",
    "current_tokens",
    "token_expiry_time",
    "lock",
}
# What is read of the SDK's values, in catalogue.py and results.py.
READ: dict[Any, set[str]] = {
    mcp_types.Tool: {"name", "title", "description", "input_schema", "output_schema", "annotations"},
    mcp_types.ToolAnnotations: {
        "title",
        "read_only_hint",
        "destructive_hint",
        "idempotent_hint",
        "open_world_hint",
    },
    mcp_types.Prompt: {"name", "title", "description", "arguments"},
    mcp_types.PromptArgument: {"name", "description", "required"},
    mcp_types.Resource: {"uri", "name", "title", "description", "mime_type", "size"},
    mcp_types.ResourceTemplate: {"uri_template", "name", "title", "description", "mime_type"},
    mcp_types.CallToolResult: {"content", "structured_content", "is_error"},
    mcp_types.TextContent: {"type", "text"},
    mcp_types.ImageContent: {"type", "data", "mime_type"},
    mcp_types.AudioContent: {"type", "data", "mime_type"},
    mcp_types.ResourceLink: {"type", "uri", "name", "title", "description", "mime_type"},
    mcp_types.EmbeddedResource: {"type", "resource"},
    mcp_types.TextResourceContents: {"uri", "text"},
    mcp_types.BlobResourceContents: {"uri", "blob", "mime_type"},
    auth.OAuthToken: {"access_token", "refresh_token", "expires_in", "scope"},
    auth.OAuthMetadata: {
        "issuer",
        "authorization_endpoint",
        "token_endpoint",
        "token_endpoint_auth_methods_supported",
    },
    auth.OAuthClientInformationFull: {
        "client_id",
        "client_secret",
        "client_secret_expires_at",
        "redirect_uris",
        "token_endpoint_auth_method",
    },
}


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_the_installed_sdk_is_in_the_range_that_was_looked_at() -> None:
    major, minor, *_ = map(int, importlib.metadata.version("mcp").split(".")[:2])
    assert (major, minor) >= (2, 3)
    assert major < 3


@pytest.mark.parametrize("name", METHODS)
def test_the_provider_has_the_private_method(name: str) -> None:
    assert parameters(getattr(OAuthClientProvider, name)) == METHODS[name]


@pytest.mark.parametrize("name", CONTEXT)
def test_the_context_has_the_method(name: str) -> None:
    assert parameters(getattr(OAuthContext, name)) == CONTEXT[name]


def test_the_context_has_the_fields() -> None:
    assert {field.name for field in dataclasses.fields(OAuthContext)} >= FIELDS


def test_the_provider_takes_what_it_is_given_and_remembers_whether_it_has_read() -> None:
    assert parameters(OAuthClientProvider.__init__)[:3] == ["server_url", "client_metadata", "storage"]
    assert "self._initialized = False" in inspect.getsource(OAuthClientProvider.__init__)
    assert "self._initialized = True" in inspect.getsource(OAuthClientProvider._initialize)


def test_what_takes_the_place_of_the_sdk_s_is_asked_in_the_same_way() -> None:
    ours = {name for name, value in vars(DurableOAuth).items() if inspect.isfunction(value)}
    replaced = {name for name in ours if hasattr(OAuthClientProvider, name)} - {"__init__"}
    assert replaced == {"_auth_flow", "_initialize", "_perform_authorization", "_handle_refresh_response"}
    for name in replaced:
        assert parameters(getattr(DurableOAuth, name)) == METHODS[name]


def test_the_flow_sends_a_person_away_through_one_method_alone() -> None:
    flow = inspect.getsource(OAuthClientProvider._auth_flow)
    assert flow.count("self._perform_authorization()") == 1
    assert "redirect_handler" not in flow
    assert "time.time" not in flow


def test_the_helpers_are_where_they_were() -> None:
    assert parameters(utils.validate_authorization_response_iss) == ["iss", "oauth_metadata"]
    assert parameters(utils.issuers_match) == ["a", "b"]
    assert {"code_verifier", "code_challenge"} == set(PKCEParameters.model_fields)
    assert oauth2.logger.name == "mcp.client.auth.oauth2"
    assert {"auth", "follow_redirects"} <= set(parameters(httpx2.AsyncClient.send))


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.__name__)
def test_the_values_have_the_fields_that_are_read(kind: Any) -> None:
    assert READ[kind] <= set(kind.model_fields)


PURE = (
    "words",
    "mcp.naming",
    "mcp.catalogue",
    "mcp.results",
    "oauth.sealing",
    "oauth.keep",
    "oauth.callback",
)


def run(script: str) -> str:
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return ran.stdout


@pytest.mark.slow
def test_what_stands_by_itself_does_not_load_the_sdk() -> None:
    imports = "".join(f"import everthink.{name}\n" for name in PURE)
    loaded = set(run(f"import sys\n{imports}print(*sys.modules)").split())
    assert not loaded & {"mcp", "mcp_types", "httpx2", "cryptography"}


@pytest.mark.slow
def test_without_the_extra_oauth_says_what_to_install() -> None:
    script = """
import sys
sys.modules["mcp"] = None
try:
    import everthink.oauth.flow
except Exception as error:
    print(type(error).__name__, error)
"""
    assert 'pip install "everthink[mcp]"' in run(script)
