"""What a disk may contain after a power loss, computed from a record of all changes of its files.

`disk_recorder.cpp` writes the record. A change of a file is durable when a sync of the file that
began after the change has ended. A new, renamed or removed name is durable when a sync of its
folder that began after it has ended; POSIX promises no more, although most file systems do more.
After a power loss, each durable change is there, and of the others:

* each page of 4 KiB is as it was at some moment since the last sync, or each of its sectors of 512
  bytes is so independently of the others;
* the size of a file is one of its sizes since the last sync;
* each folder lacks its latest changes, from a random one on. A rename between two folders is there
  in both folders or in none.

Files that a process has mapped writably contain anything. Modes and owners are not modelled.
"""

import enum
import os
import random
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PAGE_BYTES = 4096
_SECTOR_BYTES = 512
_HEADER = struct.Struct("<4I4Q")


class Kind(enum.IntEnum):
    """The kinds of events, with their numbers in `disk_recorder.cpp`. Only tests write marks."""

    CREATE = 1
    MKDIR = 2
    RENAME = 3
    UNLINK = 4
    RMDIR = 5
    LINK = 6
    WRITE = 7
    SIZE = 8
    SYNC_BEGIN = 9
    SYNC_END = 10
    THROUGH = 11
    MAPPED = 12
    ANONYMOUS = 13
    UNKNOWN = 14
    MARK = 15


@dataclass(frozen=True, slots=True)
class Event:
    """One change, sync or mark. `number` is the offset of a write, a size, or a sync's token."""

    kind: Kind
    folder: int = 0
    other_folder: int = 0
    inode: int = 0
    number: int = 0
    name: str = ""
    other_name: str = ""
    data: bytes = b""

    def to_bytes(self) -> bytes:
        names = self.name.encode(), self.other_name.encode()
        sizes = (self.kind, len(names[0]), len(names[1]), len(self.data))
        places = (self.folder, self.other_folder, self.inode, self.number)
        return _HEADER.pack(*sizes, *places) + b"".join(names) + self.data


def events_of(record: Path) -> Iterator[Event]:
    """Reads the events of a record, in their order."""
    with record.open("rb") as file:
        while header := file.read(_HEADER.size):
            kind, name, other, data, *places = _HEADER.unpack(header)
            names = file.read(name).decode(), file.read(other).decode()
            yield Event(Kind(kind), *places, *names, file.read(data))


@dataclass(eq=False, slots=True)
class _File:
    """A file: its durable bytes, and the later changes in order, each with its serial number.

    A change of a page is the offset in the page and the new bytes.
    """

    durable: bytearray = field(default_factory=bytearray)
    size: int = 0
    pages: dict[int, list[tuple[int, int, bytes]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    sizes: list[tuple[int, int]] = field(default_factory=list)
    last_write: range = range(0)
    is_mapped: bool = False

    def write(self, serial: int, offset: int, data: bytes) -> None:
        self.last_write = range(offset, offset + len(data))
        position = 0
        while position < len(data):
            page, start = divmod(offset + position, _PAGE_BYTES)
            part = data[position : position + _PAGE_BYTES - start]
            self.pages[page].append((serial, start, part))
            position += len(part)
        if self.last_write.stop > self.size:
            self._resize(serial, self.last_write.stop)

    def resize(self, serial: int, size: int) -> None:
        for page in range(size // _PAGE_BYTES, -(-self.size // _PAGE_BYTES)):
            start = max(size - page * _PAGE_BYTES, 0)
            self.pages[page].append((serial, start, bytes(_PAGE_BYTES - start)))
        self._resize(serial, size)

    def _resize(self, serial: int, size: int) -> None:
        self.size = size
        self.sizes.append((serial, size))

    def sync(self, before: int, pages: list[int] | None = None) -> None:
        """Makes the changes with a serial number below `before` durable, of `pages` or of all."""
        for serial, size in self.sizes:
            if serial < before:
                _set_size(self.durable, size)
        self.sizes = [change for change in self.sizes if change[0] >= before]
        for page in list(self.pages) if pages is None else pages:
            changes = self.pages.pop(page, [])
            for _, start, data in (change for change in changes if change[0] < before):
                _put(self.durable, page * _PAGE_BYTES + start, data)
            if later := [change for change in changes if change[0] >= before]:
                self.pages[page] = later

    def through(self, before: int) -> None:
        """Makes the pages of the last write durable."""
        first, last = self.last_write.start, self.last_write.stop - 1
        self.sync(before, list(range(first // _PAGE_BYTES, last // _PAGE_BYTES + 1)))

    def after_power_loss(self, loss: "Loss") -> bytes:
        """Returns what the file may contain after a power loss."""
        sizes = [len(self.durable), *(size for _, size in self.sizes)]
        size = sizes[loss.cut(len(self.sizes))]
        if self.is_mapped:
            return loss.anything(size)
        content = bytearray(self.durable)
        _set_size(content, max(size, self.size))
        for page, changes in self.pages.items():
            loss.put_page(content, page, changes)
        _set_size(content, size)
        return bytes(content)


def _set_size(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _put(content: bytearray, offset: int, data: bytes) -> None:
    """Replaces bytes of the content. Bytes after its end are no part of the file, and left out."""
    kept = data[: max(len(content) - offset, 0)]
    content[offset : offset + len(kept)] = kept


@dataclass(eq=False, slots=True)
class _Folder:
    """A folder. Its names are in the maps of `Disk`."""


_Node = _File | _Folder
_Names = dict[_Folder, dict[str, _Node]]


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of the names in one folder, or in two folders by a rename."""

    serial: int
    kind: Kind
    folders: tuple[_Folder, ...]
    name: str
    other_name: str
    node: _Node | None

    def apply(self, names: _Names) -> None:
        if self.kind in (Kind.UNLINK, Kind.RMDIR):
            del names[self.folders[0]][self.name]
        elif self.kind is Kind.RENAME:
            node = names[self.folders[0]].pop(self.name)
            names[self.folders[-1]][self.other_name] = node
        else:
            assert self.node is not None
            names[self.folders[0]][self.name] = self.node


class Loss:
    """Decides at random what a power loss leaves of the changes that are not durable.

    `kept` is 0 if nothing is left, 1 if everything is left, and None if each page and each folder
    is decided separately.
    """

    def __init__(self, source: random.Random, kept: int | None) -> None:
        self._source = source
        self._kept = kept

    def cut(self, count: int) -> int:
        """Returns how many of `count` changes, the first ones, are left."""
        return self._source.randint(0, count) if self._kept is None else count * self._kept

    def put_page(
        self, content: bytearray, page: int, changes: list[tuple[int, int, bytes]]
    ) -> None:
        """Applies the first changes of a page, the same in all sectors or other ones in each."""
        offset = page * _PAGE_BYTES
        if self._kept is not None or self._source.random() < 2 / 3:
            for _, start, data in changes[: self.cut(len(changes))]:
                _put(content, offset + start, data)
            return
        for sector in range(0, _PAGE_BYTES, _SECTOR_BYTES):
            torn = bytearray(content[offset : offset + _PAGE_BYTES])
            for _, start, data in changes[: self.cut(len(changes))]:
                _put(torn, start, data)
            _put(content, offset + sector, bytes(torn[sector : sector + _SECTOR_BYTES]))

    def anything(self, size: int) -> bytes:
        return self._source.choice((bytes, self._source.randbytes))(size)


class Disk:
    """The state of a disk after the events that were applied, durable or not."""

    def __init__(self, root: int) -> None:
        """`root` is the inode of the folder that was recorded. It is durable."""
        self._root = _Folder()
        self._nodes: dict[int, _Node] = {root: self._root}
        self._names: _Names = defaultdict(dict)
        self._changes: list[_Change] = []
        self._syncs: dict[int, tuple[_Node, int]] = {}
        self._serial = 0

    def apply(self, event: Event) -> None:
        """Applies the next event."""
        self._serial += 1
        kind = event.kind
        if kind in (Kind.CREATE, Kind.MKDIR, Kind.ANONYMOUS):
            self._nodes[event.inode] = _Folder() if kind is Kind.MKDIR else _File()
        if kind <= Kind.LINK:
            self._changes.append(self._change(event))
            return
        node = self._nodes.get(event.inode)
        if kind is Kind.SYNC_BEGIN:
            self._syncs[event.number] = self._nodes[event.inode], self._serial
        elif kind is Kind.SYNC_END:
            self._sync(*self._syncs.pop(event.number))
        elif isinstance(node, _File):
            self._change_file(node, event)
        else:
            assert kind is Kind.MARK, event

    def _change_file(self, file: _File, event: Event) -> None:
        if event.kind is Kind.WRITE:
            file.write(self._serial, event.number, event.data)
        elif event.kind is Kind.SIZE:
            file.resize(self._serial, event.number)
        elif event.kind is Kind.THROUGH:
            file.through(self._serial)
        elif event.kind is Kind.MAPPED:
            file.is_mapped = True

    def _change(self, event: Event) -> _Change:
        inodes = [event.folder]
        if event.kind is Kind.RENAME and event.other_folder != event.folder:
            inodes.append(event.other_folder)
        folders = [self._nodes[inode] for inode in inodes]
        return _Change(
            self._serial,
            event.kind,
            tuple(folder for folder in folders if isinstance(folder, _Folder)),
            event.name,
            event.other_name,
            self._nodes.get(event.inode),
        )

    def _sync(self, node: _Node, before: int) -> None:
        if isinstance(node, _File):
            node.sync(before)
            return
        durable: dict[int, _Change] = {}
        synced = {node}
        for change in reversed(self._changes):
            # The earlier changes of a folder are durable if one of its changes is.
            if change.serial < before and synced.intersection(change.folders):
                synced.update(change.folders)
                durable[change.serial] = change
        for serial in sorted(durable):
            durable[serial].apply(self._names)
        self._changes = [change for change in self._changes if change.serial not in durable]

    def lose_power(self, target: Path, loss: Loss) -> None:
        """Writes what may be left after a power loss into the new folder `target`."""
        names: _Names = defaultdict(dict)
        names.update({folder: dict(entries) for folder, entries in self._names.items()})
        for change in self._kept_changes(loss):
            change.apply(names)
        _write(names, self._root, target, loss)

    def _kept_changes(self, loss: Loss) -> Iterator[_Change]:
        counts: dict[_Folder, int] = defaultdict(int)
        for change in self._changes:
            for folder in change.folders:
                counts[folder] += 1
        left = {folder: loss.cut(count) for folder, count in counts.items()}
        for change in self._changes:
            if all(left[folder] for folder in change.folders):
                for folder in change.folders:
                    left[folder] -= 1
                yield change
            else:
                left |= dict.fromkeys(change.folders, 0)


def _write(names: _Names, folder: _Folder, target: Path, loss: Loss) -> None:
    target.mkdir(0o700)
    for name, node in names[folder].items():
        if isinstance(node, _Folder):
            _write(names, node, target / name, loss)
            continue
        descriptor = os.open(target / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(node.after_power_loss(loss))
