#!/usr/bin/python3
"""Includes go along the arrows of the design, and no file is an attic. Prints complaints; exits 1."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# A module and the modules whose headers it may include, besides its own.
MAY = {
    "base": set(),
    "config": {"base"},
    "control": {"base"},
    "logger": {"base"},
    "sessions": {"base", "config", "control", "logger"},
    "services": {"base", "config", "logger", "sessions"},
    "import": {"base", "config"},
    "init": {"base", "config", "control", "import", "logger", "sessions", "services"},
    "ctl": {"base", "control"},
    "gateway": {"base", "control"},
}
ATTICS = {"util", "utils", "common", "misc", "helpers", "helper"}


def complaints():
    for module, allowed in MAY.items():
        for file in sorted((ROOT / module).rglob("*.[ch]")):
            name = file.relative_to(ROOT)
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
                m = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
                if not m:
                    continue
                target = m.group(1).split("/")[0]
                if target in MAY and target != module and target not in allowed:
                    yield f"{name}:{number}: {module} may not include {m.group(1)}"
                if m.group(1).endswith("_internal.h") and target != module:
                    yield f"{name}:{number}: {m.group(1)} is private to {target}"
    for module in MAY:
        internals = sorted((ROOT / module).glob("*_internal.h"))
        if len(internals) > 1:
            yield f"{module}: at most one *_internal.h: {', '.join(p.name for p in internals)}"
    for file in ROOT.rglob("*.[ch]"):
        parts = file.relative_to(ROOT).parts
        if parts[0] not in ("build", ".git") and file.stem in ATTICS:
            yield f"{file.relative_to(ROOT)}: a file named for nothing; name it by its subject"


def main():
    found = list(complaints())
    print("\n".join(found) or "arrows: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
