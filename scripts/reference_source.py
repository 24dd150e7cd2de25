"""Read the package's source for scripts/reference: modules, classes, signatures. Nothing is imported or run.

Source.find("think:Think") --> Item --members--> Attribute, Group --signature--> text
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

__all__ = [
    "Attribute",
    "Function",
    "Group",
    "Item",
    "Source",
    "annotations",
    "bases",
    "is_alias",
    "members",
    "overloads",
    "parameters",
    "signature",
    "unparse",
]

WIDTH = 100
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """The package's modules, parsed."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self.module = cache(self._module)

    def _module(self, name: str) -> Module:
        path = self.package.joinpath(*name.split(".")) if name else self.package
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        return Module(name, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py")

    def find(self, target: str) -> list[Item]:
        """What `module:Name` or `module:*` names, imports followed."""
        module, _, name = target.partition(":")
        if name == "*":
            found = [self.find(f"{module}:{name}")[0] for name in self.module(module).exports]
            return sorted(found, key=lambda item: item.node.lineno)
        item = self.look_up(self.module(module), name)
        if item is None:
            raise SystemExit(f"scripts/reference: there is no {name} in everthink.{module}.")
        return [item]

    def look_up(self, module: Module, name: str) -> Item | None:
        """What a name stands for in a module; `None` when it is not ours."""
        if name not in module.imported:
            return module.items.get(name)
        origin, original = module.imported[name]
        return self.look_up(self.module(origin), original) if original not in self.rooms(origin) else None

    def rooms(self, name: str) -> set[str]:
        """The modules directly in a folder."""
        folder = self.package.joinpath(*name.split("."))
        return {path.stem for path in folder.glob("*.py")} if name and folder.is_dir() else set()

    def named(self, module: Module, node: ast.AST) -> Iterator[tuple[str, Item]]:
        """The things of ours that an annotation names: `Status`, `port.Status`."""
        for one in ast.walk(node):
            name, home = one.id if isinstance(one, ast.Name) else "", module
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name):
                origin, room = module.imported.get(one.value.id, ("", ""))
                if room in self.rooms(origin):
                    name, home = one.attr, self.module(f"{origin}.{room}")
            if name and (item := self.look_up(home, name)) is not None:
                yield name, item


class Module:
    """One file: what it defines, what it imports from us, and its `__all__`."""

    def __init__(self, name: str, text: str, *, is_package: bool) -> None:
        self.name, self.lines = name, text.splitlines()
        self.exports: list[str] = []
        self.imported: dict[str, tuple[str, str]] = {}
        """A name here -> the module it comes from and its name there."""
        self.items: dict[str, Item] = {}
        tree = ast.parse(text)
        self.about = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
        """The first sentence of its docstring."""
        body = list(_always(tree.body))
        for node, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.ImportFrom) and node.level:
                here = name.split(".") if is_package and name else name.split(".")[:-1]
                outer = here[: len(here) - (node.level - 1)]
                origin = ".".join([*outer, *(node.module or "").split(".")]).strip(".")
                self.imported.update({one.asname or one.name: (origin, one.name) for one in node.names})
            elif isinstance(node, Function | ast.ClassDef):
                self.items.setdefault(node.name, Item(self, node.name, [], None)).nodes.append(node)
            elif (target := assigned(node)) is not None:
                self.items[target] = Item(self, target, [node], text_of(after))
                if target == "__all__":
                    self.exports = list(ast.literal_eval(node.value))  # type: ignore[attr-defined]


def _always(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, with those that only a type checker reads."""
    for node in body:
        if isinstance(node, ast.If) and unparse(node.test) == "TYPE_CHECKING":
            yield from node.body
        else:
            yield node


@dataclass
class Item:
    """Something a module defines. An overloaded function has several nodes."""

    module: Module
    name: str
    nodes: list[ast.stmt]
    comment: str | None

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from others of its name."""
        return self.module.name, self.name

    @property
    def node(self) -> ast.stmt:
        """The definition that counts."""
        return self.nodes[-1]

    @property
    def doc(self) -> str:
        """Its docstring."""
        if isinstance(self.node, Function | ast.ClassDef):
            return ast.get_docstring(self.node) or ""
        return self.comment or ""

    @property
    def home(self) -> str:
        """The module that defines it, and that users import it from unless a façade exports it."""
        return f"everthink.{self.module.name}"


def assigned(node: ast.stmt) -> str | None:
    """The name that a statement gives a value, if it does that."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case _:
            return None


def text_of(node: ast.stmt | None) -> str | None:
    """The text of a statement that is a text: the docstring of what stands before it."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
        case _:
            return None


# --- what is in a class ------------------------------------------------------------------


@dataclass
class Attribute:
    """A field, a property, or something an instance has."""

    name: str
    type: str
    default: str
    doc: str


@dataclass
class Group:
    """Methods below one `# --- title` comment."""

    title: str
    methods: list[list[Function]] = field(default_factory=list)


def members(item: Item, hidden: list[str]) -> tuple[list[Attribute], list[Group]]:
    """The public attributes and methods of a class, in the order of the file."""
    node = item.node
    assert isinstance(node, ast.ClassDef)
    attributes: list[Attribute] = []
    groups, titles = [Group("")], headings(item, node)
    methods: dict[str, list[Function]] = {}
    for child, after in zip(node.body, [*node.body[1:], None], strict=True):
        while titles and titles[0][0] < child.lineno:
            groups.append(Group(titles.pop(0)[1]))
        if isinstance(child, Function):
            if child.name == "__init__":
                attributes += instance_attributes(child)
            elif child.name.startswith("_") or any(
                unparse(decorator) == f"{child.name}.setter" for decorator in child.decorator_list
            ):
                continue
            elif {unparse(decorator) for decorator in child.decorator_list} & {"property", "cached_property"}:
                attributes.append(
                    Attribute(child.name, unparse(child.returns), "", ast.get_docstring(child) or "")
                )
            else:
                if child.name not in methods:
                    groups[-1].methods.append(methods.setdefault(child.name, []))
                methods[child.name].append(child)
        elif isinstance(child, ast.AnnAssign) and (name := assigned(child)):
            attributes.append(
                Attribute(name, unparse(child.annotation), default_of(child.value), text_of(after) or "")
            )

    # The fields of a base that nobody imports are its own to whoever reads the page.
    for base in filter(None, (item.module.items.get(unparse(base)) for base in node.bases)):
        if base.name.startswith("_") and isinstance(base.node, ast.ClassDef):
            fields = {assigned(child) for child in base.node.body if isinstance(child, ast.AnnAssign)}
            attributes += [one for one in members(base, hidden)[0] if one.name in fields]

    def shown(name: str) -> bool:
        return name[0] != "_" and not any(fnmatch(f"{item.name}.{name}", pattern) for pattern in hidden)

    for group in groups:
        group.methods = [method for method in group.methods if shown(method[0].name)]
    return [one for one in attributes if shown(one.name)], [group for group in groups if group.methods]


def headings(item: Item, node: ast.ClassDef) -> list[tuple[int, str]]:
    """Line and text of the `# --- title` comments of a class."""
    found: list[tuple[int, str]] = []
    for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
        if title := re.fullmatch(r"    # --- (.*?)[ -]*", item.module.lines[number - 1]):
            found.append((number, title[1]))
    return found


def instance_attributes(init: Function) -> Iterator[Attribute]:
    """Attributes that a constructor sets and says something about."""
    for node, after in zip(init.body, [*init.body[1:], None], strict=True):
        if (doc := text_of(after)) is None:
            continue
        match node:
            case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=annotation):
                yield Attribute(name, unparse(annotation), "", doc)
            case ast.Assign(targets=[ast.Attribute(attr=name)]):
                yield Attribute(name, "", "", doc)
            case _:
                pass


def default_of(value: ast.expr | None) -> str:
    """A default as one would write it."""
    match value:
        case ast.Call(func=ast.Name(id="field") | ast.Attribute(attr="field"), keywords=keywords):
            given = {keyword.arg: unparse(keyword.value) for keyword in keywords}
            return given.get("default") or (
                f"{given['default_factory']}()" if "default_factory" in given else ""
            )
        case _:
            return unparse(value)


# --- signatures --------------------------------------------------------------------------


def unparse(node: ast.AST | None) -> str:
    """Source text, with quotes as we write them, and without the modules that names come from."""
    if node is None:
        return ""
    text = re.sub(r"'([^'\"\\]*)'", r'"\1"', ast.unparse(node))
    return re.sub(r"\b(?:model|ui|wire)\.(?=[A-Z])", "", text)


def signature(node: Function, *, name: str | None = None, is_method: bool = False) -> str:
    """`def name(…) -> …`, over several lines when it is long. Methods are shown without `self`."""
    decorators = {unparse(decorator) for decorator in node.decorator_list}
    words = list(parameters(node.args))[1 if is_method and "staticmethod" not in decorators else 0 :]
    returns = f" -> {unparse(node.returns)}" if node.returns and name is None else ""
    head = ("async def " if isinstance(node, ast.AsyncFunctionDef) else "def ") if name is None else ""
    head = "".join(f"@{kind}\n" for kind in ("classmethod", "staticmethod") if kind in decorators) + head
    head += f"{name or node.name}("
    line = f"{head}{', '.join(words)}){returns}"
    if max(map(len, line.splitlines())) <= WIDTH:
        return line
    return head + "\n" + "".join(f"    {word},\n" for word in words) + f"){returns}"


def parameters(args: ast.arguments) -> Iterator[str]:
    """Each parameter as it is written."""
    plain = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    for number, (argument, default) in enumerate(zip(plain, defaults, strict=True), start=1):
        yield parameter(argument, default)
        if number == len(args.posonlyargs) and args.posonlyargs[-1].arg != "self":
            yield "/"
    if args.vararg:
        yield "*" + parameter(args.vararg, None)
    elif args.kwonlyargs:
        yield "*"
    for argument, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield parameter(argument, default)
    if args.kwarg:
        yield "**" + parameter(args.kwarg, None)


def parameter(argument: ast.arg, default: ast.expr | None) -> str:
    """One parameter."""
    text = argument.arg + (f": {unparse(argument.annotation)}" if argument.annotation else "")
    if default is None:
        return text
    return text + (f" = {unparse(default)}" if argument.annotation else f"={unparse(default)}")


def overloads(nodes: list[Any]) -> list[Function]:
    """The overloads of a function, or the function."""
    return [n for n in nodes if any(unparse(d) == "overload" for d in n.decorator_list)] or nodes[-1:]


def bases(node: ast.ClassDef) -> list[str]:
    """What a class is made from, as far as users care."""
    plain = [unparse(base).partition("[")[0] for base in node.bases]
    return [
        base for base in plain if base not in ("Generic", "msgspec.Struct", "TypedDict") and base[0] != "_"
    ]


def annotations(node: ast.AST) -> Iterator[ast.AST]:
    """Every annotation of public things in a definition."""
    if isinstance(node, ast.ClassDef):
        for child in node.body:
            if isinstance(child, Function) and child.name.startswith("_") and child.name != "__init__":
                continue
            yield from annotations(child)
    elif isinstance(node, Function):
        every = [
            *node.args.posonlyargs,
            *node.args.args,
            *node.args.kwonlyargs,
            node.args.vararg,
            node.args.kwarg,
        ]
        yield from (one.annotation for one in every if one and one.annotation)
        if node.returns:
            yield node.returns
    elif isinstance(node, ast.AnnAssign):
        yield node.annotation


def is_alias(node: ast.stmt) -> bool:
    """True for `Status = Literal[…]`, `Input = str | Message`; not for type variables and markers."""
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp)
