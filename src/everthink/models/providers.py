"""Find the model a developer means.

    model = "anthropic:claude-sonnet-5" --> resolve_model --> Model

Names are checked here, when the agent asks for its model, so that a typing error, a missing
package or a missing key is an error that says what to do and not a failed turn. Nothing of
pydantic-ai is imported before the first name that needs it.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import re
import weakref
from typing import TYPE_CHECKING, Any, cast

from ..errors import InvalidSettings, MissingExtra, MissingKey, UnknownModel
from ..masking import mask
from .port import Model

if TYPE_CHECKING:
    from .provider_model import ProviderModel

__all__ = ["model_named", "openai_compatible", "resolve_model"]

# fmt: off
_PROVIDERS = (
    "alibaba", "anthropic", "azure", "bedrock", "cerebras", "cohere", "deepseek", "fireworks",
    "github", "google", "google-cloud", "groq", "heroku", "huggingface", "litellm", "mistral",
    "moonshotai", "nebius", "ollama", "openai", "openai-chat", "openai-responses", "openrouter",
    "ovhcloud", "together", "vercel", "vllm", "xai", "zai",
)
# fmt: on

_OUR_EXTRAS = {"anthropic": "anthropic", "bedrock": "bedrock", "google": "google", "google-cloud": "google"}
_OTHER_EXTRAS = {"cohere", "groq", "huggingface", "mistral", "xai"}

_TRY_THE_DEMO = 'To look around without a key, use the model "demo".'

_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")

# Clients belong to the event loop they were first used on; a name resolves to one model per loop.
_resolved: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Model]] = (
    weakref.WeakKeyDictionary()
)


def resolve_model(value: object) -> Model:
    """The `Model` behind what an agent gave as its model.

    Takes a `Model` of ours, `"provider:model"`, `"demo"`, or a model object of pydantic-ai. Raises
    `UnknownModel`, `MissingExtra` or `MissingKey`.
    """
    if isinstance(value, str):
        return _resolve_name(value.strip())
    if callable(getattr(value, "stream", None)) and not isinstance(value, type):
        _check_model(value)
        return cast("Model", value)
    if callable(getattr(value, "request_stream", None)) and not isinstance(value, type):
        from .provider_model import ProviderModel

        return ProviderModel(cast("Any", value))
    raise UnknownModel(
        f"{value!r} is not a model.",
        next_step='Use a name such as "anthropic:claude-sonnet-5" or "demo", or an object with `stream`.',
    )


def _check_model(given: object) -> None:
    """Refuse a model of one's own that lacks what every turn asks it for."""
    name, continues = getattr(given, "name", None), getattr(given, "continues", None)
    if not isinstance(name, str):
        raise _lacks(given, "name", name, 'a text, such as "mine"')
    if continues not in ("prefill", "prompt"):
        raise _lacks(given, "continues", continues, '"prefill" or "prompt"')


def _lacks(given: object, field: str, value: object, takes: str) -> UnknownModel:
    return UnknownModel(
        f"{type(given).__name__}.{field} is {value!r}: a model has `name`, `continues` and `stream`.",
        next_step=f"Give it {takes}.",
    )


def model_named(name: str) -> ProviderModel:
    """The model of this very name, `"provider:model"`, even if the name looks like a typing error."""
    provider, colon, model = name.partition(":")
    if not (provider and colon and model):
        raise UnknownModel(f"{name!r} is not a model name.", next_step='Write it as "provider:model".')
    _import_pydantic_ai(provider)
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import infer_model

    from .provider_model import ProviderModel

    _check_provider(provider, name)
    try:
        return ProviderModel(infer_model(name, _provider), name=name)
    except ImportError as error:
        raise _missing_extra(provider) from error
    except UserError as error:
        raise _missing_key(name, str(error)) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("openai", "anthropic", "groq", "botocore", "google"):
            raise _missing_key(name, str(error)) from error
        raise


def openai_compatible(
    model: str, *, base_url: str, api_key: str | None = None, name: str = "openai-compatible"
) -> ProviderModel:
    """A model at any address that speaks OpenAI's chat completions: a gateway, vLLM, LM Studio, llama.cpp.

    `name` identifies the service: reasoning and other data it wants back is kept under it.
    """
    _check_address(base_url)
    _import_pydantic_ai("openai")
    try:
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
    except ImportError as error:
        raise _missing_extra("openai") from error
    from .provider_model import ProviderModel

    provider = OpenAICompatibleProvider(name, base_url=base_url, api_key=api_key or "no-key")
    return ProviderModel(OpenAIChatModel(model, provider=provider), name=f"{name}:{model}")


def _check_address(base_url: object) -> None:
    if isinstance(base_url, str) and re.match(r"https?://[^/\s]", base_url, re.IGNORECASE):
        return
    text = mask(str(base_url))
    rest = re.sub(r"^[a-z]*:?/+", "", text, flags=re.IGNORECASE)
    raise InvalidSettings(
        f"openai_compatible(base_url={text!r}) is no address: it does not begin with http:// or https://.",
        next_step=f'Write base_url="http://{rest or "localhost:8000/v1"}".',
    )


def _resolve_name(name: str) -> Model:
    try:
        known = _resolved.setdefault(asyncio.get_running_loop(), {})
    except RuntimeError:
        known = {}
    if name not in known:
        known[name] = _named(name)
    return known[name]


def _named(name: str) -> Model:
    if name == "demo":
        from .demo import DemoModel

        return DemoModel()
    provider, colon, model = name.partition(":")
    if not (provider and colon and model):
        raise _no_provider(name)
    if _looks_misspelt(provider, name):
        raise _misspelt(name)
    return model_named(name)


def _import_pydantic_ai(provider: str) -> None:
    try:
        import pydantic_ai.models  # noqa: F401  # pyright: ignore[reportUnusedImport] - only to see that it is there
    except ImportError as error:
        raise _missing_extra(provider) from error


def _provider(provider: str) -> Any:
    """The provider object of a name. Ollama needs no setting when it runs where it usually runs."""
    from pydantic_ai.providers import infer_provider

    if provider == "ollama" and not os.environ.get("OLLAMA_BASE_URL"):
        from pydantic_ai.providers.ollama import OllamaProvider

        return OllamaProvider(base_url="http://localhost:11434/v1")
    return infer_provider(provider)


def _check_provider(provider: str, name: str) -> None:
    from pydantic_ai.providers import infer_provider_class

    try:
        infer_provider_class(provider)
    except ImportError as error:
        raise _missing_extra(provider) from error
    except ValueError as error:
        near = difflib.get_close_matches(provider.lower(), _PROVIDERS, n=1, cutoff=0.6)
        hint = f"Did you mean {near[0] + name[len(provider) :]!r}? " if near else ""
        raise UnknownModel(
            f"No provider is called {provider!r}.",
            next_step=f"{hint}Known providers: {', '.join(_PROVIDERS)}.",
        ) from error


def _known_names() -> tuple[str, ...]:
    try:
        from pydantic_ai.models import known_model_names
    except ImportError:
        return ()
    return known_model_names()


def _skeleton(model: str) -> str:
    """The letters of a name. Versions and dates come and go; a new one of a known family is no mistake."""
    return re.sub(r"[^a-z]", "", model.lower())


def _looks_misspelt(provider: str, name: str) -> bool:
    """Whether the name is almost, but not quite, one of a family that this provider has."""
    known = [other for other in _known_names() if other.startswith(f"{provider}:")]
    if not known or name in known:
        return False
    families = {_skeleton(other.partition(":")[2]) for other in known}
    family = _skeleton(name.partition(":")[2])
    near = difflib.get_close_matches(family, families, n=1, cutoff=0.9)
    return bool(near) and near[0] not in family and family not in near[0]


def _nearest(name: str, cutoff: float = 0.6) -> str | None:
    plain = [other for other in _known_names() if not other.startswith("gateway/")]
    plain.sort(key=lambda other: len(other.partition(":")[0]))  # "openai:" before "openai-chat:"
    if ":" in name:
        matches = difflib.get_close_matches(name, plain, n=1, cutoff=cutoff)
        return matches[0] if matches else None
    by_model = {other.partition(":")[2]: other for other in reversed(plain)}
    matches = difflib.get_close_matches(name.lower(), by_model, n=1, cutoff=cutoff)
    return by_model[matches[0]] if matches else None


def _no_provider(name: str) -> UnknownModel:
    provider, slash, model = name.partition("/")
    if slash and model and provider.lower() in _PROVIDERS:
        return UnknownModel(
            f"{name!r} does not say which provider serves it.",
            next_step=f"Write {f'{provider.lower()}:{model}'!r}: a colon stands behind the provider.",
        )
    near = "demo" if difflib.SequenceMatcher(None, name.lower(), "demo").ratio() > 0.7 else _nearest(name)
    return UnknownModel(
        f"{name!r} does not say which provider serves it.",
        next_step=(f"Did you mean {near!r}? " if near else "")
        + 'A name is "provider:model", such as "anthropic:claude-sonnet-5", or "demo".',
    )


def _misspelt(name: str) -> UnknownModel:
    return UnknownModel(
        f"{name!r} is not a model anybody knows.",
        next_step=f"Did you mean {_nearest(name)!r}? If the name is right, use "
        f"everthink.models.providers.model_named({name!r}).",
    )


def _missing_extra(provider: str) -> MissingExtra:
    package = (
        f"pydantic-ai-slim[{provider}]"
        if provider in _OTHER_EXTRAS
        else f"everthink[{_OUR_EXTRAS.get(provider, 'openai')}]"
    )
    return MissingExtra(
        f"The package that talks to {provider!r} is not installed.",
        next_step=f'Install it: pip install "{package}"',
    )


def _missing_key(name: str, said: str) -> MissingKey:
    variables = list(dict.fromkeys(_VARIABLE.findall(said)))
    keys = [v for v in variables if v.endswith(("KEY", "TOKEN"))] or variables
    if keys:
        return MissingKey(
            f"{name!r} is not set up: there is no {keys[0]}.",
            next_step=f"Set it in the environment: export {keys[0]}=… {_TRY_THE_DEMO}",
        )
    return MissingKey(f"{name!r} cannot be used: {mask(said)}", next_step=_TRY_THE_DEMO)
