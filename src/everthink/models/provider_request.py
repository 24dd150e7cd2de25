"""Turn our `Request` into what pydantic-ai's model classes take.

    turn/assemble --Request--> provider_request --messages, settings, parameters--> provider_model

History grows at its end and keeps its older message objects, so the parts of a message are
mapped once and remembered. A message must not change after it was sent, except by gaining parts.
"""

from __future__ import annotations

import base64
import logging
import sys
from collections.abc import Sequence, Set
from typing import Any, assert_never, cast
from urllib.parse import unquote_to_bytes

import msgspec
from pydantic_ai import messages as ai
from pydantic_ai.models import Model as AIModel
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.native_tools import SUPPORTED_NATIVE_TOOLS, AbstractNativeTool
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from ..errors import ModelError
from .file_urls import LEFT_OUT, may_be_opened
from .port import (
    AssistantContent,
    AssistantMessage,
    FilePart,
    ModelMessage,
    OutputSchema,
    ProviderMetadata,
    ReasoningPart,
    Request,
    Settings,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    ToolSpec,
    UserMessage,
)

__all__ = ["History", "parameters", "settings"]

UNSENDABLE = "(Something in this message could not be sent and is left out here.)"
"""What the model reads in place of a part that no provider could be given."""

log = logging.getLogger("everthink.models")

_REMEMBERED = 4096
_PROVIDERS = frozenset(
    {"anthropic", "bedrock", "cohere", "google", "groq", "mistral", "openai", "openrouter", "xai"}
)


class History:
    """Maps conversations for one model, remembering the messages it has mapped before."""

    def __init__(self, model: AIModel[Any]) -> None:
        self._system = model.system
        self._own = {model.system, model.canonical_system, *model.compatible_systems}
        self._model = model
        # By id(); the message is kept beside its parts so that its id stays taken.
        self._known: dict[int, tuple[ModelMessage, int, Sequence[Any]]] = {}

    def map(
        self, messages: Sequence[ModelMessage], parameters: ModelRequestParameters
    ) -> list[ai.ModelMessage]:
        """The conversation as requests and responses; what follows each other on one side is one message."""
        mapped = self._map(messages)
        if self._model.profile.get("tool_call_id_length") is not None or any(map(_is_special, messages[1:])):
            # Only then: it goes over everything, and explains <system> tags to models that see none.
            return self._model.prepare_messages(mapped, parameters)
        return mapped

    def _map(self, messages: Sequence[ModelMessage]) -> list[ai.ModelMessage]:
        mapped: list[ai.ModelMessage] = []
        pending: list[ai.ModelRequestPart] = []
        last = len(messages) - 1
        # What is asked now is refused when it cannot be sent; what was said before must not fail every turn.
        asked = max((i for i, m in enumerate(messages) if isinstance(m, UserMessage)), default=-1)
        for index, message in enumerate(messages):
            parts = self._parts(message, is_old=index < asked)
            if not isinstance(message, AssistantMessage):
                pending.extend(parts)
            elif parts:
                if pending:
                    mapped.append(ai.ModelRequest(parts=pending))
                    pending = []
                if index == last:
                    parts = _without_trailing_space(parts)
                mapped.append(ai.ModelResponse(parts=parts, provider_name=self._origin(message)))
        if pending:
            mapped.append(ai.ModelRequest(parts=pending))
        return mapped

    def _parts(self, message: ModelMessage, *, is_old: bool) -> Sequence[Any]:
        size = 0 if isinstance(message, SystemMessage) else len(message.content)
        known = self._known.get(id(message))
        if known is not None and known[0] is message and known[1] == size:
            return known[2]
        if len(self._known) >= _REMEMBERED:
            for old in list(self._known)[: _REMEMBERED // 2]:
                del self._known[old]
        try:
            parts = _map(message, self._own)
        except Exception as error:
            if not is_old:
                raise
            log.warning("what a message holds cannot be sent to %s and is left out: %s", self._system, error)
            parts = _map(_without_unsendable(message, self._own), self._own)
        self._known[id(message)] = (message, size, parts)
        return parts

    def _origin(self, message: AssistantMessage) -> str | None:
        """This model's system when it wrote the message itself, so that item ids may go back to it."""
        for part in message.content:
            if part.provider_metadata and self._system in part.provider_metadata:
                return self._system
        return None


def _is_special(message: ModelMessage) -> bool:
    """Whether not every model takes such a message as it is: instructions on the way, files from a tool."""
    if isinstance(message, ToolMessage):
        return any(isinstance(part, ToolResultPart) and part.content is not None for part in message.content)
    return isinstance(message, SystemMessage)


def _map(message: ModelMessage, own: set[str]) -> list[Any]:
    match message:
        case SystemMessage():
            return [ai.SystemPromptPart(message.text)]
        case UserMessage():
            return [ai.UserPromptPart(_content(message.content))]
        case ToolMessage():
            return [_result(part) for part in message.content if isinstance(part, ToolResultPart)]
        case AssistantMessage():
            return [_answer(part) for part in message.content if _goes_back(part, own)]
        case _:
            assert_never(message)


def _without_unsendable(message: ModelMessage, own: set[str]) -> ModelMessage:
    """`message` with a note in place of each part that has no form for a provider."""
    if isinstance(message, SystemMessage):
        return SystemMessage(UNSENDABLE)
    kept: list[Any] = [part if _is_sendable(message, part, own) else _noted(part) for part in message.content]
    return msgspec.structs.replace(message, content=kept)


def _is_sendable(message: Any, part: Any, own: set[str]) -> bool:
    try:
        _map(msgspec.structs.replace(message, content=[part]), own)
    except Exception:  # noqa: BLE001 - what is wrong was logged with the whole message
        return False
    return True


def _noted(part: Any) -> Any:
    if isinstance(part, ToolResultPart):
        return ToolResultPart(part.id, part.name, UNSENDABLE, part.is_error, None, part.provider_executed)
    if isinstance(part, ToolCallPart):
        return ToolCallPart(part.id, part.name, {}, part.provider_executed)
    return TextPart(UNSENDABLE)


def _goes_back(part: AssistantContent, own: set[str]) -> bool:
    """Thinking goes only to who signed it; a file the model made only as data, never as a link."""
    if isinstance(part, ReasoningPart):
        return bool(part.provider_metadata) and not own.isdisjoint(part.provider_metadata)
    return not isinstance(part, FilePart) or part.url.startswith("data:")


def _content(parts: Sequence[TextPart | FilePart]) -> str | list[ai.UserContent]:
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return [part.text if isinstance(part, TextPart) else _file(part) for part in parts]


def _file(part: FilePart) -> ai.UserContent:
    if not may_be_opened(part.url):
        return LEFT_OUT
    if part.url.startswith("data:"):
        return _binary(part)
    match part.media_type.partition("/")[0]:
        case "image":
            cls = ai.ImageUrl
        case "audio":
            cls = ai.AudioUrl
        case "video":
            cls = ai.VideoUrl
        case _:
            cls = ai.DocumentUrl
    return cls(part.url, media_type=part.media_type, identifier=part.filename)


def _binary(part: FilePart) -> ai.BinaryContent:
    head, comma, body = part.url.partition(",")
    if not comma:
        raise ModelError(
            f"A file of the conversation has a data: URL without data ({part.url[:40]!r}).",
            kind="fatal",
            next_step="Write it as data:<media type>;base64,<data>.",
        )
    raw = unquote_to_bytes(body)
    data = base64.b64decode(raw) if head.endswith(";base64") else raw
    content = ai.BinaryContent(data, media_type=part.media_type, identifier=part.filename)
    return ai.BinaryContent.narrow_type(content)


def _result(part: ToolResultPart) -> ai.ToolReturnPart:
    return ai.ToolReturnPart(
        part.name,
        part.output if part.content is None else _content(part.content),
        part.id,
        outcome="failed" if part.is_error else "success",
    )


def _answer(part: AssistantContent) -> ai.ModelResponsePart:
    origin = _Origin(part.provider_metadata)
    match part:
        case TextPart():
            return ai.TextPart(part.text, **origin.fields())
        case ReasoningPart():
            return ai.ThinkingPart(part.text, signature=origin.signature, **origin.fields())
        case FilePart():
            return ai.FilePart(_binary(part), **origin.fields())
        case ToolCallPart():
            cls = ai.NativeToolCallPart if part.provider_executed else ai.ToolCallPart
            return cls(part.name, _arguments(part.input), part.id, **origin.fields())
        case ToolResultPart():
            fields = origin.fields()
            fields.pop("id", None)
            outcome = "failed" if part.is_error else "success"
            return ai.NativeToolReturnPart(part.name, part.output, part.id, outcome=outcome, **fields)
        case _:
            assert_never(part)


def _arguments(value: Any) -> str | dict[str, Any]:
    """What a call was given. Providers take objects only; broken text is wrapped on the way out."""
    return cast("dict[str, Any] | str", value) if isinstance(value, dict | str) else {"value": value}


class _Origin:
    """What the provider wants back with a part, read from our metadata (see `provider_events`)."""

    def __init__(self, metadata: ProviderMetadata | None) -> None:
        self.provider, self.data = next(iter(metadata.items())) if metadata else (None, {})

    @property
    def signature(self) -> str | None:
        return self.data.get("redactedData") or self.data.get("signature")

    def fields(self) -> dict[str, Any]:
        if self.provider is None:
            return {}
        id = "redacted_thinking" if "redactedData" in self.data else self.data.get("itemId")
        return {"id": id, "provider_name": self.provider, "provider_details": self.data.get("details")}


def _without_trailing_space(parts: Sequence[Any]) -> Sequence[Any]:
    """An answer to go on from may not end in white space, or providers refuse it."""
    if parts and isinstance(last := parts[-1], ai.TextPart) and last.content != last.content.rstrip():
        return [*parts[:-1], ai.TextPart(last.content.rstrip())]
    return parts


def parameters(model: AIModel[Any], request: Request) -> ModelRequestParameters:
    """Instructions, tools and the output schema of one call."""
    result = ModelRequestParameters(
        function_tools=[_tool(spec) for spec in request.tools],
        native_tools=_native_tools(request.settings),
        instruction_parts=[ai.InstructionPart(content=request.system)] if request.system else [],
    )
    if request.output is not None:
        _ask_for_output(model, request.output, result)
    return result


def _tool(spec: ToolSpec) -> ToolDefinition:
    return ToolDefinition(
        name=spec.name,
        description=spec.description,
        parameters_json_schema=spec.input_schema,
        strict=bool(spec.strict),
    )


def _native_tools(given: Settings) -> list[AbstractNativeTool]:
    """Tools the provider runs itself: `provider_options={"native_tools": ["web_search", …]}`."""
    wanted = cast("list[Any]", (given.provider_options or {}).get("native_tools") or [])
    kinds = {cls.kind: cls for cls in SUPPORTED_NATIVE_TOOLS}
    tools: list[AbstractNativeTool] = []
    for tool in wanted:
        if isinstance(tool, str) and tool not in kinds:
            raise ModelError(
                f"No provider runs a tool called {tool!r} itself.",
                kind="fatal",
                next_step=f"native_tools may name: {', '.join(sorted(kinds))}.",
            )
        tools.append(kinds[tool]() if isinstance(tool, str) else tool)
    return tools


def _ask_for_output(model: AIModel[Any], output: OutputSchema, result: ModelRequestParameters) -> None:
    """The JSON as text where the model can be held to a schema, else as the input of a call we unwrap."""
    profile = model.profile
    if profile.get("supports_json_schema_output", False):
        result.output_mode = "native"
    elif profile.get("default_structured_output_mode", "tool") == "tool" and profile.get(
        "supports_tools", True
    ):
        result.output_mode, result.allow_text_output = "tool", False
        result.output_tools = [
            ToolDefinition(
                name=output.name,
                description=output.description or "Give the final result.",
                parameters_json_schema=output.json_schema,
                strict=False,
                kind="output",
            )
        ]
        return
    else:
        result.output_mode = "prompted"
    result.output_object = OutputObjectDefinition(
        json_schema=output.json_schema, name=output.name, description=output.description
    )


def settings(model: AIModel[Any], request: Request) -> ModelSettings:
    """Settings of one call.

    `provider_options` holds what has no name of its own: settings of pydantic-ai
    (`{"thinking": "high", "parallel_tool_calls": False, "anthropic_effort": "low"}`), and anything
    else, which goes into the body of the HTTP request as it is. Under a provider's name the prefix
    is not needed and other providers ignore it: `{"anthropic": {"thinking": {"type": "adaptive"}}}`.
    """
    given = request.settings
    named: dict[str, Any] = {
        "max_tokens": given.max_output_tokens,
        "temperature": given.temperature,
        "top_p": given.top_p,
        "top_k": given.top_k,
        "presence_penalty": given.presence_penalty,
        "frequency_penalty": given.frequency_penalty,
        "stop_sequences": given.stop_sequences,
        "seed": given.seed,
        "extra_headers": given.headers,
    }
    result = {key: value for key, value in named.items() if value is not None}
    if "max_retries" not in model.unsupported_settings:
        result["max_retries"] = 0  # the turn loop retries
    if choice := _tool_choice(request):
        result["tool_choice"] = choice
    if given.provider_options:
        _add_options(model, given.provider_options, result)
    return cast("ModelSettings", result)


def ignored(model: AIModel[Any], given: ModelSettings) -> list[str]:
    """What of the settings the model does not take, in words."""
    left_out: Set[str] = model._unsupported_settings()  # pyright: ignore[reportPrivateUsage]
    names = [name for name in given if name in left_out]
    return [f"{model.model_name} does not take {name}, which was left out." for name in names]


def _tool_choice(request: Request) -> str | list[str] | None:
    if not request.tools or request.tool_choice == "auto":
        return None
    if request.tool_choice.startswith("tool:"):
        return [request.tool_choice.removeprefix("tool:")]
    return request.tool_choice


def _add_options(model: AIModel[Any], options: dict[str, Any], result: dict[str, Any]) -> None:
    system = model.system.partition("-")[0]
    for key, value in options.items():
        if key == "native_tools":
            continue
        if key in _PROVIDERS and isinstance(value, dict):
            if key == system:
                for name, inner in cast("dict[str, Any]", value).items():
                    _add_option(model, f"{system}_{name}", name, inner, result)
        else:
            _add_option(model, key, key, value, result)


def _add_option(model: AIModel[Any], full: str, name: str, value: Any, result: dict[str, Any]) -> None:
    known = _known_settings(type(model))
    if full in known:
        result[full] = value
    elif name == "extra_body":
        result["extra_body"] = {**result.get("extra_body", {}), **value}
    elif name in known:
        result[name] = value
    else:
        result["extra_body"] = {**result.get("extra_body", {}), name: value}


def _known_settings(cls: type[AIModel[Any]]) -> frozenset[str]:
    """Every setting a model class and its bases know, from the typed dictionaries beside them."""
    if cls not in _SETTINGS:
        keys = set(ModelSettings.__annotations__)
        for base in cls.__mro__:
            for name, value in vars(sys.modules[base.__module__]).items():
                if name.endswith("ModelSettings"):
                    keys.update(getattr(value, "__annotations__", ()))
        _SETTINGS[cls] = frozenset(keys)
    return _SETTINGS[cls]


_SETTINGS: dict[type[AIModel[Any]], frozenset[str]] = {}
