"""Listing local files: a folder's tree, one file, or a glob."""

import glob
import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from corpusmill.errors import SourceError
from corpusmill.settings import Settings, SourceSettings
from corpusmill.sources.listing import Listed, Source, file_uri


def list_files(source: Source, settings: Settings) -> Iterator[Listed]:
    """The files of a source that the settings take; what cannot be read is listed with its problem."""
    if source.kind == "folder":
        for path in _walk(source.location, "", settings.source, ()):
            relative = os.path.relpath(path.rstrip("/"), source.location)
            yield _listed(path, relative + "/" if path.endswith("/") else relative)
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
    base = source.location.split("*")[0].split("?")[0].split("[")[0].rpartition("/")[0] or "/"
    found = False
    for path in sorted(glob.iglob(source.location, recursive=True, include_hidden=settings.hidden)):
        relative = os.path.relpath(path, base)
        if not os.path.isdir(path) and taken(relative, settings):
            found = True
            yield _listed(path, relative)
    if not found:
        raise SourceError(f"no file fits {source.location!r}")


def _walk(root: str, relative: str, settings: SourceSettings, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Files under a folder in the order of their names; a folder that cannot be listed comes as itself with a slash.
    A link to a folder above is not followed: what it leads to is listed already."""
    folder = os.path.join(root, relative) if relative else root
    try:
        here = os.stat(folder)
        names = sorted(os.listdir(folder))
    except OSError:
        yield folder.rstrip("/") + "/"
        return
    identity = (here.st_dev, here.st_ino)
    if identity in above:
        return
    for name in names:
        path = os.path.join(relative, name) if relative else name
        if not settings.hidden and name.startswith("."):
            continue
        if os.path.isdir(os.path.join(root, path)):
            yield from _walk(root, path, settings, (*above, identity))
        elif taken(path, settings):
            yield os.path.join(root, path)


def _listed(path: str, relative: str) -> Listed:
    shown = os.fsencode(relative).decode("utf-8", "backslashreplace")
    uri = file_uri(path)
    if path.endswith("/"):
        return Listed(shown, uri, "unreadable", problem=f"the folder cannot be listed: {_why(path)}")
    try:
        found = os.stat(path)
    except OSError as error:
        return Listed(shown, uri, "unreadable", problem=f"cannot be read: {error.strerror}")
    version = f"{found.st_size}-{found.st_mtime_ns}"
    if not stat.S_ISREG(found.st_mode):
        return Listed(shown, uri, version, problem="not a regular file")
    if shown != relative:
        return Listed(shown, uri, version, found.st_size, problem="the file's name is not UTF-8")
    return Listed(shown, uri, version, found.st_size, location=path)


def _why(folder: str) -> str:
    try:
        os.listdir(folder)
    except OSError as error:
        return error.strerror or str(error)
    return "it could not be listed a moment ago"
