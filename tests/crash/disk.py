"""A model of the disk that follows the system calls of a recording: what is in the cache, and what
may be on the disk after the power failed.

The model takes POSIX at its word. A file's bytes are durable when its fsync has returned, a name
when the fsync of its directory has returned; any part of everything else may be on the disk or not.
Real file systems promise more (ext4 orders its journal), so each of their states is one of these.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.crash.trace import Call

Tree = dict[str, bytes | None]
"""Path -> content; None: a directory."""

_SILENT = {"close", "dup", "dup2", "dup3", "fcntl", "mmap", "lseek"}


@dataclass(slots=True, eq=False)
class Node:
    """A file or directory: its content in the cache and on the disk. ignored: it has no content."""

    directory: bool
    ignored: bool = False
    cached: bytes = b""
    durable: bytes = b""
    names: dict[str, Node] = field(default_factory=dict)
    durable_names: dict[str, Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A change that is not yet durable.

    A write has (node, offset, data). A new size has (node, size), and data is None. A change of
    names has (directory, name, node or None) for each name, and all of them take effect or none.
    """

    number: int
    node: Node | None = None
    offset: int = 0
    data: bytes | None = None
    names: tuple[tuple[Node, str, Node | None], ...] = ()

    def apply(self, image: bytearray, low: int = 0, high: int | None = None) -> None:
        """Put a write (or its bytes low .. high), or a new size, into `image`."""
        if self.data is None:
            if self.offset < len(image):
                del image[self.offset :]
            else:
                image.extend(bytes(self.offset - len(image)))
            return
        data = self.data[low:high]
        start = self.offset + low
        if data:
            if len(image) < start + len(data):
                image.extend(bytes(start + len(data) - len(image)))
            image[start : start + len(data)] = data


class Unknown(Exception):
    """The recording holds a call that this model cannot follow."""


class Disk:
    """Follows calls below `root`. Paths that `ignore` names are left out of every tree."""

    def __init__(self, root: str, ignore: Callable[[str], bool]) -> None:
        """Begin with an empty, durable `root`."""
        self._root = posixpath.normpath(root)
        self._ignore = ignore
        self._top = Node(directory=True)
        self._open: dict[int, tuple[Node, str]] = {}
        self._offsets: dict[int, int] = {}
        self._time = 0
        self.pending: list[Change] = []

    # --- following ------------------------------------------------------------------------------

    def follow(self, call: Call) -> bool:
        """Take in a call; return whether it may have changed what can be on the disk."""
        self._time += 1
        if call.result < 0:
            return False
        if call.name in _SILENT:
            self._silent(call)
            return False
        handler = getattr(self, "_on_" + call.name, None)
        if handler is None:
            if self._touches(call):
                raise Unknown(str(call))
            return False
        return bool(handler(call))

    def _touches(self, call: Call) -> bool:
        texts = (text.decode(errors="replace") for text in call.strings)
        return any(text.startswith(self._root) for text in texts) or (
            call.arguments[:1].isdigit() and call.number(0) in self._open
        )

    def _silent(self, call: Call) -> None:
        if call.name == "close":
            self._open.pop(call.number(0), None)
        elif call.name == "mmap":
            parts = call.arguments.split(", ")
            if (
                "MAP_SHARED" in parts[3]
                and "PROT_WRITE" in parts[2]
                and int(parts[4]) in self._open
            ):
                raise Unknown(str(call))
        elif call.name.startswith("dup") or "F_DUPFD" in call.arguments:
            if call.number(0) in self._open:
                self._open[call.result] = self._open[call.number(0)]
        elif call.name == "lseek" and call.number(0) in self._open:
            self._offsets[call.number(0)] = call.result

    def _path(self, text: bytes, base: str = "") -> str | None:
        path = text.decode()
        if not path.startswith("/"):
            path = f"{base}/{path}" if base else path
        path = posixpath.normpath(path)
        if path == self._root:
            return ""
        return path[len(self._root) + 1 :] if path.startswith(self._root + "/") else None

    def _at(self, call: Call, position: int = 0, text: int = 0) -> str | None:
        """The path of an ...at() call, relative to the root; None when it is not below it."""
        base = call.arguments.split(", ")[position]
        if base.isdigit() and not call.strings[text].startswith(b"/"):
            if int(base) not in self._open:
                return None
            inside = self._open[int(base)][1]
            return posixpath.normpath(posixpath.join(inside, call.strings[text].decode()))
        return self._path(call.strings[text])

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._top
        for part in path.split("/") if path else ():
            node = node.names.get(part) if node is not None else None
        return node

    def _parent(self, path: str) -> tuple[Node, str]:
        parent, _, name = path.rpartition("/")
        node = self._find(parent)
        if node is None:
            raise Unknown(f"no directory for {path}")
        return node, name

    def _name(self, *changes: tuple[Node, str, Node | None]) -> None:
        for directory, name, node in changes:
            if node is None:
                directory.names.pop(name, None)
            else:
                directory.names[name] = node
        if not all(self._ignore(name) for _, name, _ in changes):
            self.pending.append(Change(self._time, names=changes))

    def _write(self, node: Node, offset: int, data: bytes | None) -> None:
        if node.ignored:
            return
        change = Change(self._time, node, offset, data)
        image = bytearray(node.cached)
        change.apply(image)
        node.cached = bytes(image)
        self.pending.append(change)

    def _opened(self, call: Call, path: str | None) -> bool:
        if path is None:
            self._open.pop(call.result, None)
            return False
        node, changed = self._find(path), False
        if node is None:
            if "O_CREAT" not in call.arguments:
                raise Unknown(f"{call} of {path}")
            node = Node(directory=False, ignored=self._ignore(path))
            self._name((*self._parent(path), node))
            changed = True
        elif "O_TRUNC" in call.arguments and node.cached:
            self._write(node, 0, None)
            changed = True
        self._open[call.result] = (node, path)
        self._offsets[call.result] = len(node.cached) if "O_APPEND" in call.arguments else 0
        return changed and not self._ignore(path)

    def _on_openat(self, call: Call) -> bool:
        return self._opened(call, self._at(call))

    def _on_open(self, call: Call) -> bool:
        return self._opened(call, self._path(call.strings[0]))

    def _written(self, call: Call, offset: int | None) -> bool:
        handle = call.number(0)
        if handle not in self._open:
            return False
        node, path = self._open[handle]
        data = b"".join(call.strings)[: call.result]
        if offset is None:
            offset = self._offsets[handle]
            self._offsets[handle] = offset + len(data)
        self._write(node, offset, data)
        return not self._ignore(path)

    def _on_write(self, call: Call) -> bool:
        return self._written(call, None)

    _on_writev = _on_write

    def _on_pwrite64(self, call: Call) -> bool:
        return self._written(call, call.number(-1))

    _on_pwritev = _on_pwrite64

    def _on_pwritev2(self, call: Call) -> bool:
        return self._written(call, call.number(-2))

    def _sized(self, node: Node, size: int) -> bool:
        self._write(node, size, None)
        return True

    def _on_ftruncate(self, call: Call) -> bool:
        handle = call.number(0)
        return handle in self._open and self._sized(self._open[handle][0], call.number(1))

    def _on_fallocate(self, call: Call) -> bool:
        handle = call.number(0)
        if handle not in self._open:
            return False
        if call.number(1):
            raise Unknown(str(call))
        node, size = self._open[handle][0], call.number(2) + call.number(3)
        return size > len(node.cached) and self._sized(node, size)

    def _on_fsync(self, call: Call) -> bool:
        handle = call.number(0)
        if handle not in self._open:
            return False
        node = self._open[handle][0]
        return self._settle_all(
            change
            for change in self.pending
            if change.number <= call.started
            and (change.node is node or any(where is node for where, _, _ in change.names))
        )

    _on_fdatasync = _on_fsync

    def _on_sync_written(self, call: Call) -> bool:
        """The write before this call is durable, and so is a size that the file was given before.

        Log storage leaves nothing else un-synced in such a file, so nothing else is modelled.
        """
        handle = call.number(0)
        if handle not in self._open:
            return False
        node, own = self._open[handle][0], self._time - 1
        here = [change for change in self.pending if change.node is node]
        if any(change.data is not None and change.number != own for change in here):
            raise Unknown(f"un-synced writes beside {call}")
        return self._settle_all(
            change for change in here if change.number == own or change.number <= call.started
        )

    def _settle_all(self, changes: Iterable[Change]) -> bool:
        done = list(changes)
        for change in done:
            self._settle(change)
        if done:
            gone = set(map(id, done))
            self.pending = [change for change in self.pending if id(change) not in gone]
        return bool(done)

    def _settle(self, change: Change) -> None:
        if change.node is not None:
            image = bytearray(change.node.durable)
            change.apply(image)
            change.node.durable = bytes(image)
        for directory, name, node in change.names:
            if node is None:
                directory.durable_names.pop(name, None)
            else:
                directory.durable_names[name] = node

    def _renamed(self, source: str | None, target: str | None) -> bool:
        if source is None and target is None:
            return False
        if source is None or target is None:
            raise Unknown("a rename across the root")
        node = self._find(source)
        if node is None:
            raise Unknown(f"rename of {source}")
        self._name((*self._parent(source), None), (*self._parent(target), node))
        return not (self._ignore(source) and self._ignore(target))

    def _on_rename(self, call: Call) -> bool:
        return self._renamed(self._path(call.strings[0]), self._path(call.strings[1]))

    def _removed(self, path: str | None) -> bool:
        if path is None:
            return False
        self._name((*self._parent(path), None))
        return not self._ignore(path)

    def _on_unlink(self, call: Call) -> bool:
        return self._removed(self._path(call.strings[0]))

    _on_rmdir = _on_unlink

    def _on_unlinkat(self, call: Call) -> bool:
        return self._removed(self._at(call))

    def _on_mkdir(self, call: Call) -> bool:
        path = self._path(call.strings[0])
        if not path:
            return False
        self._name((*self._parent(path), Node(directory=True)))
        return True

    # --- looking --------------------------------------------------------------------------------

    def cache(self) -> Tree:
        """The tree that a process sees which starts now."""
        return self._tree(lambda node: node.names, lambda node: node.cached)

    def after_power_cut(
        self, survives: Iterable[Change], torn: tuple[Change, int, int] | None = None
    ) -> Tree:
        """The tree on the disk when only the pending changes in `survives` got there.

        Of the write that `torn` names only a range of its bytes got there.
        """
        contents: dict[int, bytearray] = {}
        names: dict[int, dict[str, Node]] = {}
        steps = [(change, 0, None) for change in survives]
        if torn is not None:
            steps.append(torn)  # type: ignore[arg-type]
        for change, low, high in steps:
            if change.node is not None:
                image = contents.get(id(change.node))
                if image is None:
                    image = contents[id(change.node)] = bytearray(change.node.durable)
                change.apply(image, low, high)
            for directory, name, node in change.names:
                there = names.setdefault(id(directory), dict(directory.durable_names))
                if node is None:
                    there.pop(name, None)
                else:
                    there[name] = node
        return self._tree(
            lambda node: names.get(id(node), node.durable_names),
            lambda node: bytes(contents[id(node)]) if id(node) in contents else node.durable,
        )

    def _tree(
        self, names: Callable[[Node], dict[str, Node]], content: Callable[[Node], bytes]
    ) -> Tree:
        tree: Tree = {}
        waiting = [("", self._top)]
        while waiting:
            prefix, directory = waiting.pop()
            for name, node in names(directory).items():
                path = prefix + name
                if node.directory:
                    tree[path] = None
                    waiting.append((path + "/", node))
                elif not self._ignore(path):
                    tree[path] = content(node)
        return tree


def fingerprint(tree: Tree) -> int:
    """A number that is equal for equal trees, within a process. Each content is hashed only
    once.
    """
    return hash(frozenset(tree.items()))
