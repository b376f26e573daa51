"""An HTML page as a tree, and what must hold for every page: nesting, ids, no requests."""

from collections.abc import Iterator
from html.parser import HTMLParser

VOID = frozenset(("meta", "link", "br", "img", "hr", "input", "use", "path"))
"""Elements without an end tag; those of SVG may end with a slash."""

LOADING = ("src", "srcset", "poster", "data", "action", "background")
"""Attributes that make a browser load something."""


class Node:
    """An element with its attributes, children and text."""

    def __init__(
        self, tag: str, attributes: dict[str, str], parent: "Node | None"
    ) -> None:
        self.tag = tag
        self.attributes = attributes
        self.parent = parent
        self.contents: list[Node | str] = []

    def every(self, *tags: str) -> Iterator["Node"]:
        """The elements below with one of these tags, in order; all without tags."""
        for child in self.children:
            if not tags or child.tag in tags:
                yield child
            yield from child.every(*tags)

    def get(self, name: str) -> str | None:
        return self.attributes.get(name)

    @property
    def children(self) -> "list[Node]":
        """The elements directly below."""
        return [part for part in self.contents if isinstance(part, Node)]

    @property
    def text(self) -> str:
        """All text below, spaces joined."""
        parts = (
            part.text if isinstance(part, Node) else part for part in self.contents
        )
        return " ".join(" ".join(parts).split())


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.open = Node("", {}, None)
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.faults.append(f"<{tag}> has an attribute twice: {names}")
        node = Node(tag, {name: value or "" for name, value in attrs}, self.open)
        self.open.contents.append(node)
        if tag not in VOID:
            self.open = node

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if self.open.tag != tag:
            line, _ = self.getpos()
            self.faults.append(f"line {line}: </{tag}> closes <{self.open.tag}>")
        self.open = self.open.parent or self.root

    def handle_data(self, data: str) -> None:
        self.open.contents.append(data)


def parse(html: str) -> tuple[Node, list[str]]:
    """Return the tree of a page, and faults of its nesting."""
    builder = _Builder()
    builder.feed(html)
    builder.close()
    if builder.open is not builder.root:
        builder.faults.append(f"<{builder.open.tag}> is never closed")
    return builder.root, builder.faults


def faults(html: str) -> list[str]:
    """Return everything that is wrong with a page; nothing of a good one."""
    root, found = parse(html)
    return [
        *found,
        *_ids(root),
        *_requests(root),
    ]


def _ids(root: Node) -> Iterator[str]:
    ids = [name for node in root.every() if (name := node.get("id")) is not None]
    yield from (
        f"id {name} twice" for name in set(ids) if ids.count(name) > 1 or " " in name
    )
    for node in root.every():
        references = (node.get("aria-labelledby") or "").split()
        references += [
            href[1:] for href in [node.get("href") or ""] if href.startswith("#")
        ]
        yield from (f"<{node.tag}> refers to {r}" for r in references if r not in ids)


def _requests(root: Node) -> Iterator[str]:
    for node in root.every():
        if node.tag in ("script", "iframe", "object", "embed"):
            yield f"<{node.tag}>"
        for name, value in node.attributes.items():
            is_inside = node.tag == "img" and value.startswith(
                "data:image/svg+xml;base64,"
            )
            if (name in LOADING and not is_inside) or name.startswith("on"):
                yield f"<{node.tag} {name}={value}>"
            if name == "href" and not value.startswith(("#", "data:,")):
                yield f"<{node.tag} href={value}>"
            if "url(" in value and "url(#" not in value:
                yield f"<{node.tag} {name}={value}>"
    for sheet in root.every("style"):
        if "url(" in sheet.text or "@import" in sheet.text:
            yield "a style sheet that loads something"
