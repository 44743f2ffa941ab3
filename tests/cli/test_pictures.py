from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest

from fedfactor.algorithm_names import algorithm_class, algorithm_names
from fedfactor.cli.pictures import history_svg, owners_svg, png_uri
from fedfactor.cli.run_summary import uploads
from fedfactor.core.algorithm import Meta
from fedfactor.core.parameters import settings_of_class


def test_png_holds_the_picture():
    image = pytest.importorskip("matplotlib.image")
    picture = np.array([[0.0, 0.5, 1.0], [np.nan, 1.0, 0.0]])
    data = base64.b64decode(png_uri(picture).partition(",")[2])
    pixels = image.imread(io.BytesIO(data), format="png")
    seen = np.isfinite(picture)
    np.testing.assert_array_equal(pixels[..., -1] > 0, seen)
    np.testing.assert_allclose(pixels[..., 0][seen], 1 - picture[seen], atol=1 / 255)


@pytest.mark.parametrize("rounds", [1, 2, 3, 100])
def test_charts_escape_labels_and_stay_in_their_frame(rounds):
    lines = {"<b>&": list(np.linspace(0.5, 0.3, rounds)), "flat": [0.31] * rounds}
    svg = history_svg(lines, ('"base"', 0.3), "a < b")
    assert "&lt;b&gt;&amp;" in svg
    assert "<b>" not in svg
    assert "nan" not in svg
    assert svg.count('class="line') == 2
    assert "a &lt; b" in owners_svg({"x": {"0": 0.1}, "y": {"0": 0.2}}, "a < b")


def test_a_gap_in_the_history_is_left_out():
    svg = history_svg({"x": [0.5, float("nan"), 0.3]}, ("base", 0.25), "t")
    assert "nan" not in svg


def test_uploads_are_told_in_the_words_of_the_message():
    from fedfactor.algorithms import PooledNMF

    plain, masked = (uploads(PooledNMF(2), Meta(4, ("a", "b"), masked=masked))[0] for masked in (False, True))
    assert plain.startswith("Each owner sent all that the best V depends on, UᵀU and UᵀX")
    assert masked.startswith("Each owner sent UᵀU, Uᵀ(M ∗ X)")
    assert plain.endswith("their sum alone is used.")
    assert "rest:" not in plain
    own = uploads(PooledNMF(2, n_private=1), Meta(4, ("a", "b")))[0]
    assert "rest: ‖X − PQ‖²" in own
    assert "lengths:" not in own


@pytest.mark.parametrize("name", algorithm_names())
def test_what_an_owner_sent_is_said_of_the_owner(name):
    kind = algorithm_class(name)
    given = {"n_components": 2} if "n_components" in {each.name for each in settings_of_class(kind)} else {}
    for said in uploads(kind(**given), Meta(4, ("a", "b"))):
        assert not re.search(r"\b(client|party|parties)\b", said), said
