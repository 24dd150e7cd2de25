"""Between the JSON a model writes and the typed arguments a Python function takes.

    Signature --TypedInput--> JSON schema        (once, when the tool is defined)
    JSON input --TypedInput--> keyword arguments (every call)

Arguments the model left out are left out here too, so the function's own defaults apply; `completed`
writes them down for whoever decides about a call. NaN and the infinities are no numbers to us: they
compare as no amount does.
This module imports pydantic; `tool.py` imports it only when a tool is defined.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, cast, get_args, get_origin

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema, to_json, to_jsonable_python

from ..errors import InvalidSettings
from ..settings import nearest
from .explain import explain, misfit, not_an_object
from .finite import non_finite
from .schema import tidy
from .signature import Signature, is_context, refuse

__all__ = ["TypedInput"]

_REST = "**"
"""Where the `**kwargs` stand while pydantic looks at them. No parameter can be called so."""


class TypedInput:
    """How one function's input looks as JSON, and how it becomes arguments."""

    def __init__(self, signature: Signature, hints: Mapping[str, Any], help_: Mapping[str, str]) -> None:
        self.context = [name for name, hint in hints.items() if is_context(hint)]
        self.takes_rest = signature.extra is not None
        self._signature = signature
        self._hints = hints
        given = [p for p in signature.parameters if p.name not in self.context]
        self._fields = {f"p{index}": parameter for index, parameter in enumerate(given)}
        self._model = self._make_model()
        self._check_defaults()
        self._keys = {name: _keys(self._model.model_fields[field], name) for field, name in self._named()}
        self._known = {key: name for name, keys in self._keys.items() for key in keys}
        self._reserved = {*signature.reserved, *self.context, *self.parameters} - set(self._known)
        self.schema = self._make_schema(help_)

    @property
    def parameters(self) -> list[str]:
        """The Python names of what the model may give."""
        return [name for _, name in self._named()]

    def defaults(self) -> dict[str, Any]:
        """What the function uses for the parameters a model may leave out."""
        return {
            p.name: p.default
            for p in self._fields.values()
            if p.default is not p.empty and not isinstance(p.default, FieldInfo)
        }

    def arguments(self, tool: str, value: Any) -> dict[str, Any]:
        """Keyword arguments for the function. Raises `ToolInputError` when the input does not fit."""
        found: Any = {} if value is None else value
        if not isinstance(found, dict):
            raise not_an_object(tool, found)
        given = cast("dict[str, Any]", found)
        rest = {key: item for key, item in given.items() if key not in self._known}
        # Models like to invent an argument for tools that take none; that is harmless.
        strangers = [key for key in rest if key in self._reserved or (self._fields and not self.takes_rest)]
        errors: list[Mapping[str, Any]] = []
        try:
            filled = self._validate({**given, _REST: rest} if self.takes_rest else given)
        except ValidationError as error:
            filled = None
            errors.extend(cast("Any", error.errors(include_url=False, include_context=False)))
        if filled is None or strangers:
            errors.extend({"type": "extra_forbidden", "loc": (key,)} for key in strangers)
            raise explain(tool, errors, given, [keys[0] for keys in self._keys.values()])
        arguments = self._filled(filled)
        if problems := [f"{where} should be a finite number" for where in non_finite(arguments)]:
            raise misfit(tool, problems)
        return arguments

    def completed(self, tool: str, value: Any) -> dict[str, Any]:
        """The input as JSON, as the function will get it: checked, converted, with its defaults."""
        given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        arguments = {**self.defaults(), **self.arguments(tool, value)}
        keys = {
            name: next((key for key in self._keys.get(name, ()) if key in given), None) for name in arguments
        }
        written: dict[str, Any] = {}
        for name, item in arguments.items():
            key = keys[name] or self._keys.get(name, [name])[0]
            written[key] = _as_json(item, given.get(key))
        return written

    def check_keys(self, tool: str, value: Any) -> None:
        """Raise `InvalidSettings` when somebody's input has a key that the function does not take, or lacks
        one that it needs. What the values are is theirs to say."""
        given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        known = [keys[0] for keys in self._keys.values()]
        names = {self._known.get(key) or key for key in given}
        where = f"Allow(input=…) for tool {tool!r}"
        for key in given:
            if (self._known.get(key) or key) not in self._keys and (
                key in self._reserved or not self.takes_rest
            ):
                near = nearest(key, known)
                takes = f"It takes: {', '.join(known)}." if known else "It takes none."
                raise InvalidSettings(
                    f"{where} has the key {key!r}, which the tool does not take.",
                    next_step=f"Did you mean {near!r}?" if near else takes,
                )
        for parameter in self._fields.values():
            if parameter.default is parameter.empty and parameter.name not in names:
                raise InvalidSettings(
                    f"{where} lacks {self._keys[parameter.name][0]!r}, which the tool needs.",
                    next_step="It is the whole input: Allow({**call.input, …}) keeps what the model gave.",
                )

    def unchecked(self, value: Any) -> dict[str, Any]:
        """Arguments from input that somebody put in place of the model's: converted where that works."""
        given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        arguments: dict[str, Any] = {}
        for key, item in given.items():
            name = self._known.get(key) or (key if key in self._keys else None)
            if name is not None:
                arguments[name] = self._convert(name, item)
            elif self.takes_rest and key not in self._reserved:
                arguments[key] = item
        return arguments

    def _named(self) -> list[tuple[str, str]]:
        return [(field, parameter.name) for field, parameter in self._fields.items()]

    def _validate(self, given: dict[str, Any]) -> BaseModel:
        try:
            # JSON rules: text is a valid date, a list is a valid tuple, also for strict types.
            encoded = to_json(given, inf_nan_mode="constants")
        except ValueError:  # not JSON; pydantic's rules for Python values come closest
            return self._model.model_validate(given)
        return self._model.model_validate_json(encoded)

    def _filled(self, filled: BaseModel) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for field, parameter in self._fields.items():
            has_own_default = parameter.default is not parameter.empty
            if (
                field in filled.model_fields_set
                or not has_own_default
                or isinstance(parameter.default, FieldInfo)
            ):
                arguments[parameter.name] = getattr(filled, field)
        if self.takes_rest:
            arguments.update(cast("Any", filled).rest)
        return arguments

    def _convert(self, name: str, item: Any) -> Any:
        field = next(field for field, found in self._named() if found == name)
        blank = self._model.model_construct()
        try:
            self._model.__pydantic_validator__.validate_assignment(blank, field, item)
        except ValidationError:
            return item
        return getattr(blank, field)

    def _make_model(self) -> type[BaseModel]:
        """A pydantic model with neutral field names; the parameter names are aliases, so any name works."""
        fields: dict[str, Any] = {
            field: (_aliased(self._hints[p.name], p.name), ... if p.default is p.empty else p.default)
            for field, p in self._fields.items()
        }
        if self._signature.extra is not None:
            fields["rest"] = (
                dict[str, self._hints[self._signature.extra.name]],
                Field(default_factory=dict, alias=_REST),
            )
        try:
            config = ConfigDict(allow_inf_nan=False)
            model: type[BaseModel] = create_model("Input", __config__=config, __module__=__name__, **fields)
        except PydanticUndefinedAnnotation as error:
            raise NameError(str(error)) from error
        except (PydanticSchemaGenerationError, PydanticUserError, TypeError, ValueError) as error:
            raise self._culprit(error) from error
        if not model.__pydantic_complete__:
            raise NameError("a type among the parameters mentions another that is not defined yet")
        return model

    def _check_defaults(self) -> None:
        """Refuse a default of another type: a model that leaves the argument out would give just that.

        `None` often says "not given", and so does an object made for it, or a number out of bounds.
        """
        blank = self._model.model_construct()
        for field, parameter in self._fields.items():
            default: Any = parameter.default
            if type(default) not in (str, int, float, bool, list, tuple, dict):
                continue
            try:
                self._model.__pydantic_validator__.validate_assignment(blank, field, default)
            except ValidationError as error:
                if any(one["type"].endswith(("_type", "_parsing")) for one in error.errors()):
                    raise refuse(
                        self._signature.fn,
                        f"the default of parameter {parameter.name!r} is {default!r:.60}, "
                        f"and its type {_type_name(self._hints[parameter.name])}",
                        "Give it a default of that type, or change the type.",
                    ) from None

    def _make_schema(self, help_: Mapping[str, str]) -> dict[str, Any]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a default that is not JSON is simply not shown
                written = self._model.model_json_schema(schema_generator=_Generator)
        except PydanticUserError as error:
            if error.code in ("class-not-fully-defined", "undefined-annotation"):
                raise NameError(str(error)) from error
            raise self._culprit(error) from error
        properties = cast("dict[str, Any]", written.get("properties", {}))
        rest = properties.pop(_REST, None)
        for name, keys in self._keys.items():
            about = properties.get(keys[0])
            if name in help_ and about is not None and "description" not in about:
                about["description"] = help_[name]
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if "required" in written:
            schema["required"] = written["required"]
        if rest is not None:
            schema["additionalProperties"] = rest.get("additionalProperties", True)
        elif self._fields:
            schema["additionalProperties"] = False
        if "$defs" in written:
            schema["$defs"] = written["$defs"]
        return tidy(schema)

    def _culprit(self, error: Exception) -> Exception:
        """Find the parameter that pydantic could not take, and say so."""
        fn, extra = self._signature.fn, self._signature.extra
        for name in [*self.parameters, *([extra.name] if extra else [])]:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    TypeAdapter(self._hints[name]).json_schema(schema_generator=_Generator)
            except Exception as reason:  # noqa: BLE001 - any failure marks the parameter
                return refuse(
                    fn,
                    f"parameter {name!r} is of type {_type_name(self._hints[name])}, "
                    f"which has no JSON form ({_first_line(reason)})",
                    "Use JSON types, dataclasses, TypedDicts or pydantic models, "
                    "and `ctx: ToolContext` for what the model does not give.",
                )
        return refuse(fn, f"its parameters have no JSON schema ({_first_line(error)})", "Simplify its types.")


class _Generator(GenerateJsonSchema):
    """pydantic's schema without what it writes for itself."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as declared there

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        # The pattern pydantic adds for the text form uses lookahead, which providers refuse.
        written = super().decimal_schema(schema)
        for choice in cast("list[dict[str, Any]]", written.get("anyOf", [])):
            choice.pop("pattern", None)
        return written


def _aliased(hint: Any, name: str) -> Any:
    """`hint` known as `name` in JSON, unless its own `Field` says otherwise (later ones win)."""
    if get_origin(hint) is Annotated:
        inner, *about = get_args(hint)
        return Annotated[(inner, Field(alias=name), *about)]  # pyright: ignore[reportInvalidTypeForm]
    return Annotated[hint, Field(alias=name)]


def _keys(field: FieldInfo, name: str) -> list[str]:
    """What a parameter may be called in JSON, as its schema calls it first."""
    alias = field.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return [choice for choice in choices if isinstance(choice, str)] or [name]


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0].split(". Set `arbitrary", 1)[0].rstrip(".")


def _type_name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)


# --- seen as JSON again: a predicate that compares an amount must see the amount that will be paid


def _as_json(value: Any, given: Any = None) -> Any:
    """`value` as JSON. Where the model `given` a number and ours is written as text, it stays a number."""
    if isinstance(value, Decimal) and given is None:
        return int(value) if value == value.to_integral_value() else float(value)
    try:
        written = to_jsonable_python(value, by_alias=True, fallback=str)
    except ValueError:  # bytes that are no text, a value that holds itself
        written = str(value)
    return _with_numbers(written, given)


def _with_numbers(written: Any, given: Any) -> Any:
    if isinstance(written, str) and isinstance(given, int | float) and not isinstance(given, bool):
        return given
    if isinstance(written, dict) and isinstance(given, dict):
        known = cast("dict[str, Any]", given)
        members = cast("dict[str, Any]", written)
        return {key: _with_numbers(item, known.get(key)) for key, item in members.items()}
    if isinstance(written, list) and isinstance(given, list):
        items, others = cast("list[Any]", written), cast("list[Any]", given)
        if len(items) == len(others):
            return [_with_numbers(item, other) for item, other in zip(items, others, strict=True)]
    return cast("Any", written)
