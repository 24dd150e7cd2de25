"""A page as people who cannot see it are told of it: roles, names, states; what can be used has a ref.

the browser's accessibility tree --told--> lines for the model, and the refs in them

    - heading "Shop" [level=1]
    - textbox "Search" [ref=e14]: shoes
    - link "Basket" [ref=e19] -> https://shop.example.com/basket

Pure. A ref is an `e` and the number that the browser has for the element, the same in every snapshot of a
page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..plain import plain

__all__ = ["Snapshot", "told"]

_THROUGH = {
    "none",
    "generic",
    "presentation",
    "InlineTextBox",
    "LineBreak",
    "ListMarker",
    "RootWebArea",
    "Abbr",
}
"""Roles that say nothing: what is in them is told in their place."""
_USABLE = {
    *("button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "switch", "slider"),
    *("spinbutton", "listbox", "option", "menuitem", "menuitemcheckbox", "menuitemradio", "tab", "treeitem"),
}
_STATES = ("checked", "pressed", "selected", "expanded", "disabled", "required", "invalid", "level")
_LONGEST_NAME, _LONGEST_URL, _DEEPEST = 300, 300, 25


class Snapshot:
    """What a page shows."""

    def __init__(self, text: str, refs: frozenset[int], *, is_cut: bool) -> None:
        self.text, self.refs, self.is_cut = text, refs, is_cut


def told(nodes: Sequence[Mapping[str, Any]], *, most: int) -> Snapshot:
    """The lines of an accessibility tree, at most so many characters of them."""
    by_id = {str(node.get("nodeId")): node for node in nodes}
    roots = [node for node in nodes if str(node.get("parentId")) not in by_id]
    lines: list[str] = []
    refs: set[int] = set()
    size, is_cut = 0, False
    # What is still to be told, the next one last: a node, how deep, and the name of what it is in.
    waiting: list[tuple[Mapping[str, Any], int, str]] = [(node, 0, "") for node in reversed(roots)]
    seen: set[str] = set()
    while waiting:
        node, depth, around = waiting.pop()
        if (key := str(node.get("nodeId"))) in seen:
            continue
        seen.add(key)
        name = _line_of(_value(node, "name"))
        line, ref = _line(node, name, around)
        if line:
            line = f"{'  ' * min(depth, _DEEPEST)}- {line}"
            if size + len(line) + 1 > most:
                is_cut = True
                break
            lines.append(line)
            size += len(line) + 1
            if ref is not None:
                refs.add(ref)
        inner = (depth + 1, name) if line else (depth, around)
        children = cast("list[Any]", node.get("childIds") or [])
        waiting.extend((by_id[str(child)], *inner) for child in reversed(children) if str(child) in by_id)
    return Snapshot("\n".join(lines), frozenset(refs), is_cut=is_cut)


def _line(node: Mapping[str, Any], name: str, around: str) -> tuple[str, int | None]:
    """What is told of one node, "" for nothing, and its ref when it can be used."""
    role = str(_value(node, "role"))
    if node.get("ignored") or role in _THROUGH or not role:
        return "", None
    if role == "StaticText":
        return (f'text "{name}"', None) if name and name not in around else ("", None)
    properties = {
        str(one.get("name")): one.get("value", {}).get("value")
        for one in cast("list[dict[str, Any]]", node.get("properties") or [])
    }
    number = node.get("backendDOMNodeId")
    is_usable = isinstance(number, int) and (role in _USABLE or properties.get("focusable") is True)
    words = [f'{role} "{name}"' if name else role]
    if is_usable:
        words.append(f"[ref=e{number}]")
    words += [
        _state(state, properties[state]) for state in _STATES if properties.get(state) not in (None, False)
    ]
    line = " ".join(word for word in words if word)
    value = _line_of(_value(node, "value"))
    if value and value != name:
        line += f": {value}"
    url = properties.get("url")
    if role == "link" and isinstance(url, str):
        line += f" -> {plain(url)[:_LONGEST_URL]}"
    return line, number if is_usable else None


def _state(name: str, value: Any) -> str:
    if value in ("false", ""):
        return ""
    return f"[{name}]" if value is True or value == "true" else f"[{name}={value}]"


def _value(node: Mapping[str, Any], key: str) -> Any:
    found = node.get(key)
    return cast("Mapping[str, Any]", found).get("value", "") if isinstance(found, Mapping) else ""


def _line_of(value: Any) -> str:
    text = " ".join(plain(str(value)).split()) if value not in (None, "") else ""
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}…"
