"""Run the claims: ``python -m claims [ITEM ...] [--fresh] [--list]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from claims._runner import find_claims, prove

ROOT = Path(__file__).resolve().parent.parent


def main(argv: list[str] | None = None) -> int:
    """Parse the arguments, run what they name, return 0 when every claim holds."""
    parser = argparse.ArgumentParser(prog="python -m claims", description=__doc__)
    parser.add_argument("items", nargs="*", help="claims to run; all of them when none is named")
    parser.add_argument("--fresh", action="store_true", help="run again what evidence.json already holds")
    parser.add_argument("--list", action="store_true", help="name the claims and stop")
    parser.add_argument("--claims", type=Path, default=ROOT / "claims", help="folder of claims")
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="code the claims speak of")
    parser.add_argument("--out", type=Path, default=ROOT / "evidence.json", help="where the evidence goes")
    options = parser.parse_args(argv)
    claims = find_claims(options.claims)
    if unknown := sorted(set(options.items) - set(claims)):
        parser.error(f"no claim is named {', '.join(unknown)}; there are: {', '.join(claims) or 'none yet'}")
    if options.list:
        print("\n".join(claims))
        return 0
    chosen = {name: path for name, path in claims.items() if not options.items or name in options.items}
    evidence = prove(chosen, source=options.source, out=options.out, fresh=options.fresh)
    return 0 if all(evidence[name]["holds"] for name in chosen) else 1


if __name__ == "__main__":
    raise SystemExit(main())
