"""Run the studies without the command line's packages: ``python -m papers.feddmf --device cuda``."""

from __future__ import annotations

import argparse
from pathlib import Path

from papers.feddmf.run import reproduce


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(prog="python -m papers.feddmf")
    parser.add_argument("--out", type=Path, default=Path("feddmf-out"))
    parser.add_argument("--size", choices=("quick", "usual", "full"), default="usual")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--passes", type=int)
    parser.add_argument("--least", type=int)
    parser.add_argument("--patience", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    asked = vars(parser.parse_args())
    reproduce(asked.pop("out"), only=tuple(asked.pop("only")), say=lambda line: print(line, flush=True), **asked)


if __name__ == "__main__":
    main()
