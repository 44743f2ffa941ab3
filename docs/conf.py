"""Sphinx settings. The build needs no network; DOCS_ONLINE=1 adds links to other projects' pages."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

import pages  # noqa: E402 (found in _ext)

project = "fedfactor"
author = "The fedfactor developers"
copyright = author
extensions = [
    "sphinx.ext.autodoc",
    "diagrams",  # in _ext
    "mathml",  # in _ext
    "redirects",  # in _ext
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "api/generated/README*"]
# The table of algorithms and the pages of the API are written from the package as it is, so they cannot fall behind.
pages.write(HERE / "api" / "generated")

# Optional dependencies that are not installed are replaced by mocks, so that all pages can be built.
OPTIONAL = "torch triton flwr mpi4py matplotlib optuna dp_accounting cryptography pandas pyarrow".split()
autodoc_mock_imports = [name for name in OPTIONAL if importlib.util.find_spec(name) is None]
autodoc_typehints = "none"  # numpydoc has the types, with shapes
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 2
copybutton_prompt_text = ">>> |\\.\\.\\. |\\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "write_computation_times": False,  # its page takes scripts and styles from elsewhere
}

html_theme = "pydata_sphinx_theme"
html_title = "fedfactor"
html_math_renderer = "mathml"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"show_prev_next": False, "navigation_with_keys": False, "secondary_sidebar_items": ["page-toc"]}

if os.environ.get("DOCS_ONLINE") == "1":
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
    }


# Inherited from scikit-learn and documented there.
SCIKIT_LEARNS = {"get_metadata_routing", "get_params", "set_params", "set_output"}


def _skip_inherited(app, what, name, obj, skip, options):
    """Leave out methods that scikit-learn adds: their text links to scikit-learn's own pages."""
    return True if name in SCIKIT_LEARNS or (name.startswith("set_") and name.endswith("_request")) else None


def setup(app):
    app.connect("autodoc-skip-member", _skip_inherited)
