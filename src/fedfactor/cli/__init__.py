"""The command line: each command a few lines over the public names."""

from fedfactor.cli.main import app

__all__ = ["app"]
