"""The input of a tool made from a function, whose types may not all be known yet.

    tool.py --FunctionInput--> typed_input, as soon as every annotation can be read

Shared by a tool and its bound copies, so the schema is made once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .signature import Signature, looks_like_context, refuse

if TYPE_CHECKING:
    from .typed_input import TypedInput

__all__ = ["FunctionInput"]


class FunctionInput:
    """A signature on its way to a schema."""

    def __init__(self, signature: Signature, help_: Mapping[str, str]) -> None:
        self._signature = signature
        self._help = help_
        self._typed: TypedInput | None = None
        self._owner: type | None = None

    def belongs_to(self, owner: type) -> None:
        """Remember the class the function is a method of; its annotations may mention it."""
        self._owner = self._owner or owner

    @property
    def names(self) -> list[str] | None:
        """The names of its parameters, before their types are known. `None`: it takes any."""
        taken = self._signature.parameters
        return None if self._signature.extra else [p.name for p in taken if not looks_like_context(p)]

    @property
    def typed(self) -> TypedInput:
        """The finished input. Raises `ToolDefinitionError` while an annotation cannot be read."""
        if self._typed is None:
            self.complete(required=True)
        assert self._typed is not None
        return self._typed

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema."""
        return self.typed.schema

    def arguments(self, tool: str, value: Any) -> dict[str, Any]:
        """The typed arguments for `value`."""
        return self.typed.arguments(tool, value)

    def complete(self, owner: type | None = None, *, required: bool) -> bool:
        """Try to make the schema. `owner` is the class the function is a method of."""
        if self._typed is not None:
            return True
        from .typed_input import TypedInput

        self._owner = owner or self._owner
        try:
            self._typed = TypedInput(self._signature, self._signature.hints(self._owner), self._help)
        except NameError as error:
            if not required:
                return False
            raise refuse(
                self._signature.fn,
                f"an annotation cannot be read: {error}",
                "Define or import the type where the tool is written.",
            ) from error
        self._signature.names.clear()
        return True
