"""Listing local files: a folder's tree, one file, or a glob."""

import errno
import glob
import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from corpusmill.errors import SourceError
from corpusmill.settings import Settings, SourceSettings
from corpusmill.sources.listing import UNREADABLE, Listed, Source, file_uri


def list_files(source: Source, settings: Settings) -> Iterator[Listed]:
    """The files of a source that the settings take; a file that cannot be read is listed with its problem.

    Raises SourceError for a folder that cannot be listed.
    """
    if source.kind == "folder":
        for relative in _walk(source.location, "", settings.source, ()):
            yield _listed(os.path.join(source.location, relative), relative)
    elif source.kind == "file":
        yield _listed(source.location, os.path.basename(source.location))
    else:
        yield from _globbed(source, settings.source)


def read_file(location: str) -> bytes:
    with open(location, "rb") as stream:
        return stream.read()


def taken(path: str, settings: SourceSettings) -> bool:
    """Whether `include`, `exclude` and `hidden` take the relative `path`. A pattern without a slash fits any folder."""
    if not settings.hidden and any(part.startswith(".") for part in PurePosixPath(path).parts):
        return False
    if any(_fits(path, pattern) for pattern in settings.exclude):
        return False
    return not settings.include or any(_fits(path, pattern) for pattern in settings.include)


def _fits(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or ("/" not in pattern and fnmatchcase(PurePosixPath(path).name, pattern))


def _globbed(source: Source, settings: SourceSettings) -> Iterator[Listed]:
    parts = source.location.strip("/").split("/")
    fixed = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    base = "/" + "/".join(parts[:fixed])
    found = False
    matched = _matched(base, "", tuple(parts[fixed:]), settings, ()) if os.path.isdir(base) else ()
    for relative in sorted(set(matched)):
        if taken(relative, settings):
            found = True
            yield _listed(os.path.join(base, relative), relative)
    if not found:
        raise SourceError(f"no file fits {source.location!r}")


def _matched(
    base: str, folder: str, parts: tuple[str, ...], settings: SourceSettings, above: tuple[tuple[int, int], ...]
) -> Iterator[str]:
    """Paths, relative to `base`, of the files under `folder` that fit the pattern's `parts`, some of them repeatedly.

    Not `glob`, which takes a folder that cannot be listed for an empty one.
    """
    part, rest = parts[0], parts[1:]
    identity, entries = _entries(os.path.join(base, folder), settings.hidden or part.startswith("."))
    if part == "**":
        if identity in above:
            return
        if rest:
            yield from _matched(base, folder, rest, settings, ())
    for name, is_folder in entries:
        path = os.path.join(folder, name)
        if part != "**" and not fnmatchcase(name, part):
            continue
        if not is_folder:
            if not rest:
                yield path
        elif part == "**" and not _excluded_whole(path, settings):
            yield from _matched(base, path, parts, settings, (*above, identity))
        elif rest and not _excluded_whole(path, settings):
            yield from _matched(base, path, rest, settings, ())


def _walk(root: str, relative: str, settings: SourceSettings, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Relative paths of the files under a folder in the order of their names.
    A link to a folder above is not followed: what it leads to is listed already."""
    identity, entries = _entries(os.path.join(root, relative), settings.hidden)
    if identity in above:
        return
    for name, is_folder in entries:
        path = os.path.join(relative, name)
        if not is_folder:
            if taken(path, settings):
                yield path
        elif not _excluded_whole(path, settings):
            yield from _walk(root, path, settings, (*above, identity))


def _entries(folder: str, hidden: bool) -> tuple[tuple[int, int], list[tuple[str, bool]]]:
    """A folder's (device, inode) and its sorted names, each with whether it is or leads to a folder.

    Raises SourceError if that cannot be told: the documents beneath would pass for deleted ones.
    """
    try:
        here = os.stat(folder)
        with os.scandir(folder) as found:
            names = sorted((entry.name, _is_folder(entry)) for entry in found if hidden or entry.name[0] != ".")
    except OSError as error:
        raise SourceError(
            f"cannot list {error.filename or folder!r}: {error.strerror or error}; "
            "where that is as it should be, leave the folder out by a pattern in source.exclude that ends with /*"
        ) from error
    return (here.st_dev, here.st_ino), names


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return False
        raise


def _excluded_whole(folder: str, settings: SourceSettings) -> bool:
    """Whether a pattern leaves out all that may be under a folder: `*` fits slashes too."""
    return any(
        "/" in pattern and pattern.endswith("*") and fnmatchcase(folder + "/", pattern) for pattern in settings.exclude
    )


def _listed(path: str, relative: str) -> Listed:
    shown = os.fsencode(relative).decode("utf-8", "backslashreplace")
    uri = file_uri(path)
    try:
        found = os.stat(path)
    except OSError as error:
        return Listed(shown, uri, UNREADABLE, problem=f"cannot be read: {error.strerror}")
    version = f"{found.st_size}-{found.st_mtime_ns}"
    if not stat.S_ISREG(found.st_mode):
        return Listed(shown, uri, version, problem="not a regular file")
    if shown != relative:
        return Listed(shown, uri, version, found.st_size, problem="the file's name is not UTF-8")
    return Listed(shown, uri, version, found.st_size, location=path)
