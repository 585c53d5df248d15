"""Makes the package `limina._sync` from `limina._async`: the two clients have one shape because they have one source.

    python unasync.py           writes the files
    python unasync.py --check   fails if they are not up to date

The files `__init__.py` and `io.py` are written by hand in both.
"""

import re
import sys
from pathlib import Path

SOURCES = Path(__file__).parent / "src" / "limina"
BY_HAND = {"__init__.py", "io.py"}
REPLACEMENTS = [
    (r"\bAcquiring\[(\w+)\]", r"\1"),
    (r"\breturn Acquiring\((.*)\)", r"return \1"),
    (r"\bimport Acquiring, ", "import "),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\ba(close|read)\b", r"\1"),
]


def made_from(source: Path) -> str:
    text = source.read_text()
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text)
    return f"# Made from _async/{source.name} by unasync.py.\n{text}"


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    sources = [path for path in sorted((SOURCES / "_async").glob("*.py")) if path.name not in BY_HAND]
    stale = []
    for source in sources:
        target = SOURCES / "_sync" / source.name
        text = made_from(source)
        if not target.exists() or target.read_text() != text:
            stale.append(target.name)
            if not check:
                target.write_text(text)
    names = {path.name for path in sources} | BY_HAND
    stale += [path.name for path in (SOURCES / "_sync").glob("*.py") if path.name not in names]
    print("\n".join(stale) if stale else "up to date")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
