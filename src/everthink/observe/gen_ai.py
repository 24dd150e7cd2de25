"""The names and shapes of OpenTelemetry's conventions for generative AI, as far as we use them.

    spans --(attribute names, messages)--> gen_ai

Kept here as constants because the conventions still move: a rename upstream is one line
here. Imports nothing of OpenTelemetry.
"""

from __future__ import annotations

import json
from typing import Any

from ..models.port import (
    ApprovalResponse,
    AssistantContent,
    AssistantMessage,
    FilePart,
    ModelMessage,
    ReasoningPart,
    Request,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UserMessage,
)

__all__ = ["as_json", "input_messages", "output_messages", "provider_and_model", "system_instructions"]

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
AGENT_ID = "gen_ai.agent.id"
CONVERSATION_ID = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"
OTHER_ERROR = "_OTHER"

# Content, recorded only when asked for.
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

# Ours, where the conventions have no name.
REQUEST_ID = "everthink.request.id"
TRIGGER = "everthink.turn.trigger"
CONTINUATION = "everthink.turn.continuation"
STATUS = "everthink.turn.status"
STEP = "everthink.step.number"
FUNCTION_ID = "everthink.function.id"
METADATA = "everthink.metadata"
CANCELED = "everthink.canceled"
TRUNCATED = "everthink.truncated"

# Our prefix of a model's name -> the provider's name in the conventions, where they differ.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}


def provider_and_model(name: str) -> tuple[str | None, str]:
    """Split `"anthropic:claude-…"` into provider and model. A bare name has no provider."""
    prefix, colon, model = name.partition(":")
    return (_PROVIDERS.get(prefix, prefix), model) if colon else (None, name)


def as_json(value: Any) -> str:
    """`value` as attribute text; what JSON cannot say is shown as `repr`."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)


def system_instructions(request: Request) -> str:
    """The system prompt as the conventions write it."""
    return as_json([{"type": "text", "content": request.system}])


def input_messages(request: Request) -> str:
    """The conversation shown to the model as the conventions write it."""
    return as_json([_message(message) for message in request.messages])


def output_messages(answer: AssistantMessage, finish_reason: str) -> str:
    """The model's answer as the conventions write it."""
    return as_json([{**_message(answer), "finish_reason": finish_reason}])


def _message(message: ModelMessage) -> dict[str, Any]:
    match message:
        case SystemMessage(text=text):
            return {"role": "system", "parts": [{"type": "text", "content": text}]}
        case UserMessage(content=content):
            return {"role": "user", "parts": [_part(part) for part in content]}
        case AssistantMessage(content=content):
            return {"role": "assistant", "parts": [_part(part) for part in content]}
        case _:
            return {"role": "tool", "parts": [_part(part) for part in message.content]}


def _part(part: AssistantContent | ApprovalResponse) -> dict[str, Any]:
    match part:
        case TextPart(text=text):
            return {"type": "text", "content": text}
        case ReasoningPart(text=text):
            return {"type": "reasoning", "content": text}
        case FilePart(url=url, media_type=media_type):
            # A data: URL may hold megabytes; that a file was there is enough.
            shown = "data:" if url.startswith("data:") else url
            return {"type": "uri", "mime_type": media_type, "uri": shown}
        case ToolCallPart(id=id, name=name, input=input):
            return {"type": "tool_call", "id": id, "name": name, "arguments": input}
        case ToolResultPart(id=id, output=output):
            return {"type": "tool_call_response", "id": id, "response": output}
        case ApprovalResponse(call_id=call_id, approved=approved):
            return {"type": "tool_approval", "id": call_id, "approved": approved}
