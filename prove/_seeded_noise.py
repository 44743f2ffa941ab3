"""``fedfactor`` with noise that a seed decides, so that a simulation can draw the same; for claims alone.

The library has no way to do this: a party whose noise somebody can repeat is not protected.
"""

from __future__ import annotations

import os

from fedfactor.cli import app
from fedfactor.privacy.channel import Site
from fedfactor.privacy.entropy import Entropy


def _entropy(site: Site, purpose: str) -> Entropy:
    return Entropy.seeded(int(os.environ["PROVE_NOISE_SEED"]), site.name, site.at.index, purpose)


if __name__ == "__main__":
    Site.entropy = _entropy  # type: ignore[method-assign]
    app(prog_name="fedfactor")
