"""Write the kept index of the present manifest version: python -m tests.write_index_fixture

Run it once when MANIFEST_VERSION grows, and commit the new folder; the folders of older versions stay as they are.
"""

from pathlib import Path

from corpusmill.store.local import LocalStore
from corpusmill.store.manifest import MANIFEST_VERSION
from tests.small_index import TEXTS_OF, build_draft, publish_draft

FOLDER = Path(__file__).resolve().parent / "data"


def main() -> None:
    target = FOLDER / f"index_v{MANIFEST_VERSION}"
    if target.exists():
        raise SystemExit(f"{target} is kept for ever; not written again")
    store = LocalStore(str(target))
    first = publish_draft(store, build_draft(store)).manifest
    publish_draft(store, build_draft(store, TEXTS_OF | {"c.txt": "A third text."}, segments=2), first)


if __name__ == "__main__":
    main()
