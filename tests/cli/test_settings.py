from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import typer

from fedfactor import algorithms
from fedfactor.algorithm_names import algorithm_class, algorithm_names, command_name
from fedfactor.cli import app
from fedfactor.cli.console import polite
from fedfactor.cli.parameter_parsing import build, data_files, typed
from fedfactor.core.errors import DataError
from fedfactor.core.parameters import settings_of_class
from tests.command_line import CliRunner


def test_every_name_leads_back_to_its_algorithm():
    for name in algorithms.__all__:
        assert algorithm_class(command_name(name)) is getattr(algorithms, name)


def test_no_two_algorithms_share_a_name():
    assert len(set(map(command_name, algorithms.__all__))) == len(algorithms.__all__)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("FNMF", "fnmf"), ("FedSPLIT", "fedsplit"), ("BooleanVotes", "boolean-votes"), ("DSANLS", "dsanls")],
)
def test_names_of_other_shapes(name, expected):
    assert command_name(name) == expected


def test_every_name_leads_back():
    assert [algorithm_class(name).__name__ for name in algorithm_names()] == list(algorithms.__all__)


def test_unknown_algorithm_lists_those_there_are():
    with pytest.raises(ValueError, match="pooled-nmf"):
        algorithm_class("pooled-nfm")


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("3", int, 3),
        ("1e-3", float, 1e-3),
        ("off", bool, False),
        ("True", bool, True),
        ("b", Literal["a", "b"], "b"),
        ("none", float | None, None),
        ("2.5", int | float, 2.5),
        ("0", str, "0"),
    ],
)
def test_values_take_the_type_of_their_field(text, kind, expected):
    value = typed("x", text, kind)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("3.5", int, "whole number"),
        ("x", float, "a number"),
        ("perhaps", bool, "true or false"),
        ("c", Literal["a", "b"], "a, b"),
        ("x", dict, "cannot be set from the command line"),
    ],
)
def test_values_of_the_wrong_type_are_refused(text, kind, says):
    with pytest.raises(ValueError, match=says):
        typed("x", text, kind)


def test_build_takes_options_and_words():
    algorithm = build("fedavg-nmf", {"n_components": 4, "tol": None}, ["local_steps=2", "weights=equal"])
    assert algorithm == algorithms.FedAvgNMF(4, local_steps=2, weights="equal")


@pytest.mark.parametrize("word", ["rank=3", "momentum", "domain=real"])
def test_build_refuses_what_is_no_setting(word):
    with pytest.raises(ValueError, match=r"Its settings are n_components, local_steps|names no value"):
        build("pooled-nmf", {"n_components": 4}, [word])


def test_settings_are_listed_with_what_they_take_and_do():
    said = CliRunner().invoke(app, ["settings", "fnmf"])
    assert said.exit_code == 0
    for each in settings_of_class(algorithms.FNMF):
        assert f" {each.name} " in said.output
    assert "float in [0, 0.5)" in said.output
    assert "``" not in said.output
    assert CliRunner().invoke(app, ["settings", "fnfm"]).exit_code == 2


@pytest.mark.parametrize("name", algorithms.__all__)
def test_every_setting_of_every_algorithm_has_words(name):
    for each in settings_of_class(getattr(algorithms, name)):
        assert each.words.endswith("."), f"{name}.{each.name}: {each.words!r}"


def test_folders_give_their_data_files_only(files):
    for name in ("notes.txt", ".hidden.csv", "README"):
        (files / name).write_text("x")
    (files / "inner.csv").mkdir()
    assert [path.name for path in data_files([files])] == ["east.npz", "north.npz", "west.npz"]


def test_a_folder_without_data_is_a_mistake(tmp_path):
    with pytest.raises(DataError, match="holds no data file"):
        data_files([tmp_path])


@pytest.mark.parametrize(
    ("common", "words", "says"),
    [
        ({}, ["tol=1", "tol=2"], "--set gives tol twice, '1' and '2'"),
        ({"n_components": 5}, ["n_components=3"], "-k and --set n_components say the same"),
        ({"n_components": 5, "tol": 0.1}, ["tol=0.1"], "--tol and --set tol say the same"),
    ],
)
def test_nothing_that_was_asked_for_is_ignored(common, words, says):
    with pytest.raises(ValueError, match=says):
        build("pooled-nmf", common, words)


def test_what_has_parts_is_said_once_and_choices_alone_where_there_are_some():
    with pytest.raises(ValueError, match=r"^options cannot be set from the command line, [^.]*\. Use [^:]*$"):
        build("boolean-votes", {"n_components": 2}, ["options=a"])
    with pytest.raises(ValueError, match=r"^weights='x' is not known\. Use one of rows, equal, mean\.$"):
        build("pooled-nmf", {"n_components": 2}, ["weights=x"])


def test_too_little_memory_is_no_traceback(capsys):
    with pytest.raises(typer.Exit) as ended, polite():
        np.empty(2**62, np.uint8)
    assert ended.value.exit_code == 2
    assert "Error: There is not enough memory. Unable to allocate" in capsys.readouterr().err
