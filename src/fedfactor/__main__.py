"""``python -m fedfactor`` is the command ``fedfactor``."""

from fedfactor.cli import app

if __name__ == "__main__":
    app(prog_name="fedfactor")
