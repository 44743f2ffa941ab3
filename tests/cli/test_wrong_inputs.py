"""Two hundred wrong or odd inputs over the commands: no traceback, and a message that helps."""

from __future__ import annotations

import gzip
import json
import re

import numpy as np
import pandas as pd
import pytest

from fedfactor.cli import app
from tests.command_line import CliRunner, command

pytestmark = pytest.mark.slow  # some six hundred commands

X = np.round(np.random.default_rng(0).random((12, 4)) * 9, 3)
NAMES = ["a", "b", "c", "d"]
COMMANDS = command(app).commands
FLAGS = {
    flag
    for command in [*COMMANDS.values(), *COMMANDS["federation"].commands.values()]
    for parameter in command.params
    for flag in (*parameter.opts, *parameter.secondary_opts)
    if flag.startswith("--")
}


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def csv(*lines):
    return ("\n".join(lines) + "\n").encode()


def table(X=X, names=NAMES, sep=","):
    return csv(sep.join(names), *(sep.join(map(str, row)) for row in X))


def saved(make):
    def write(path):
        make(path)

    return write


MTX = b"%%MatrixMarket matrix coordinate real general\n"
BAD = {
    "empty.csv": b"",
    "blank.csv": b"\n\n\n",
    "header.csv": b"a,b,c,d\n",
    "ragged.csv": csv("a,b,c,d", "1,2,3,4", "1,2,3"),
    "long_row.csv": csv("a,b,c,d", "1,2,3,4", "1,2,3,4,5,6"),
    "word.csv": csv("a,b,c,d", "1,2,3,4", "1,red,3,4", "2,2,2,2"),
    "two_texts.csv": csv("name,a,b,c,d,sex", "x,1,2,3,4,m", "y,1,2,3,4,f", "z,1,2,3,4,m"),
    "hole.csv": csv("a,b,c,d", "1,2,3,4", "1,,3,4"),
    "infinite.csv": csv("a,b,c,d", "1,2,3,4", "1,inf,3,4"),
    "twice.csv": csv("a,b,b,d", "1,2,3,4"),
    "no_header.csv": csv("0.5,0.25,1,2", "1,2,3,4"),
    "ids_twice.csv": csv("patient_id,a,b,c,d", "1,1,2,3,4", "2,1,2,3,4", "1,1,2,3,5"),
    "names_twice.csv": csv("name,a,b,c,d", "x,1,2,3,4", "x,1,2,3,4"),
    "only_ids.csv": csv("id", "x", "y"),
    "latin.csv": "a,b,c,d\n1,2,3,é\n".encode("latin-1"),
    "binary.csv": bytes(range(256)) * 4,
    "quote.csv": csv('a,b,"c,d', "1,2,3,4"),
    "thousands.csv": csv("a;b;c;d", "1.234;2,5;3,5;4,5", *["1,5;2,5;3,5;4,5"] * 3),
    "rating_twice.csv": csv("user,item,rating", "1,2,3", "1,2,4"),
    "rating_word.csv": csv("user,item,rating", "1,2,good", "1,3,4"),
    "rating_hole.csv": csv("user,item,rating", "1,2,", "1,3,4"),
    "rating_nobody.csv": csv("user,item,rating", ",2,3", "1,3,4"),
    "cut.csv.gz": gzip.compress(table() * 50)[:-30],
    "fake.csv.gz": table(),
    "empty.npy": b"",
    "noise.npy": b"no numpy here",
    "tokens.npy": b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((\n",
    "one_d.npy": saved(lambda p: np.save(p, np.ones(5))),
    "three_d.npy": saved(lambda p: np.save(p, np.ones((2, 3, 4)))),
    "text.npy": saved(lambda p: np.save(p, np.array([["a", "b"]]))),
    "complex.npy": saved(lambda p: np.save(p, np.ones((5, 4), complex))),
    "dates.npy": saved(lambda p: np.save(p, np.ones((5, 4), "M8[s]"))),
    "pickled.npy": saved(lambda p: np.save(p, np.array([[{}]], dtype=object), allow_pickle=True)),
    "no_rows.npy": saved(lambda p: np.save(p, np.ones((0, 4)))),
    "noise.npz": b"PK no zip here",
    "many.npz": saved(lambda p: np.savez(p, one=X, two=X)),
    "names.npz": saved(lambda p: np.savez(p, X=X, features=["a"])),
    "nan.npz": saved(lambda p: np.savez(p, X=np.full((3, 4), np.nan), features=NAMES)),
    "indices.npz": saved(lambda p: np.savez(p, format=b"csr", shape=(2, 4), data=[1.0], indices=[9], indptr=[0, 1, 1])),
    "kills_scipy.mtx": MTX + b"1 1 1\n1 1\n1E",
    "cut.mtx": MTX + b"3 4 5\n1 1 1\n",
    "outside.mtx": MTX + b"3 4 1\n9 9 1\n",
    "huge.mtx": MTX + b"3 4 99999999999\n1 1 1\n",
    "complex.mtx": MTX.replace(b"real", b"complex") + b"3 4 1\n1 1 1 1\n",
    "noise.mtx": b"hello",
    "noise.parquet": b"PAR1 not really PAR1",
    "dates.parquet": saved(lambda p: pd.DataFrame({"a": [1.0], "t": pd.to_datetime(["2020-01-01"])}).to_parquet(p)),
    "lists.parquet": saved(lambda p: pd.DataFrame({"a": [1.0], "t": [[1, 2]]}).to_parquet(p)),
    "levels.parquet": saved(
        lambda p: pd.DataFrame(X, columns=NAMES).set_index([np.arange(12), list("abcdefghijkl")]).to_parquet(p)
    ),
    "noise.feather": b"ARROW1 not really",
    "noise.h5ad": b"no hdf5 here",
    "sheet.xlsx": b"PK",
    "nothing": b"1,2",
}
"""Files that nobody can factor."""

FITTING = {
    "negative.csv": table(-X),
    "lacking.csv": table(X[:, :3], NAMES[:3]),
    "other.csv": table(X, ["a", "b", "c", "z"]),
    "two_units.npy": saved(lambda p: np.save(p, np.full((5, 4), 1e200))),
}
"""Files that can be read, but not be factored with the good one."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "good.csv").write_bytes(table())
    for name, content in {**BAD, **FITTING}.items():
        content(folder / name) if callable(content) else (folder / name).write_bytes(content)
    done = call("fit", folder / "good.csv", "-k", 2, "--rounds", 3, "--seed", 0, "-o", folder / "result", "-q")
    assert done.exit_code == 0, done.output
    (folder / "stars.csv").write_bytes(
        csv("user,item,rating", *(f"{u},{i},{1 + (u * i) % 5}" for u in range(1, 9) for i in range(5)))
    )
    done = call("fit", folder / "stars.csv", "-a", "pooled-cf", "-k", 2, "--seed", 0, "-o", folder / "ratings", "-q")
    assert done.exit_code == 0, done.output
    (folder / "bad.json").write_text("[" * 100_000)
    (folder / "bad.toml").write_text("a = " + "[" * 5_000)
    (folder / "typed.toml").write_text('[run]\nrounds = [1, 2]\n[algorithm]\nn_components = "x"\n')
    (folder / "date.toml").write_text("[preprocess]\nsteps = 1979-05-27\n")
    (folder / "word.toml").write_text("[privacy]\nminimum_rows = inf\n")
    return folder


def words_for(command, folder, path):
    return {
        "fit": ("fit", folder / "good.csv", path, "-k", 2, "--rounds", 2, "-o", folder / f"out-{path.name}"),
        "rank": ("rank", folder / "good.csv", path, "-k", "1-2", "--rounds", 2, "--repeats", 1),
        "transform": ("transform", folder / "result", path, "-o", folder / "u.csv"),
        "features": ("features", path, "-o", folder / "f.json"),
        "inspect": ("inspect", path),
        "compare": ("compare", folder / "good.csv", path, "-k", 2, "--rounds", 2, "--seeds", 1),
        "audit": ("audit", folder / "good.csv", path, "-k", 2, "--rounds", 2, "-o", folder / f"audit-{path.name}"),
        "predict": ("predict", folder / "ratings", "--pairs", path),
    }[command]


def check(done, *, names=""):
    said = done.stderr
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert done.exit_code == 2, (done.exit_code, said)
    assert "Traceback" not in said
    message = said[said.index("Error") :] if "Error" in said else said
    assert names in message.replace("\n", ""), message
    assert len(message.split()) > 6, message
    assert "pip install 'fedfactor[" not in message
    for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", message):
        assert flag in FLAGS, f"{flag} is no flag: {message}"


@pytest.mark.parametrize("command", ["fit", "rank", "transform", "compare", "audit", "predict"])
@pytest.mark.parametrize("name", list(BAD))
def test_bad_files(place, command, name):
    if command == "predict" and name in ("rating_twice.csv", "rating_word.csv", "rating_hole.csv"):
        assert call(*words_for(command, place, place / name)).exit_code == 0  # what was rated is not asked for
        return
    if command == "transform" and name in ("two_texts.csv", "names_twice.csv"):
        assert (
            call(*words_for(command, place, place / name)).exit_code == 0
        )  # what the components do not know is left out
        return
    check(call(*words_for(command, place, place / name)), names=name)


@pytest.mark.parametrize("command", ["features", "inspect"])
@pytest.mark.parametrize("name", [name for name in BAD if name not in ("hole.csv", "nan.npz")])
def test_bad_files_have_no_features(place, command, name):
    if command == "features" and name in ("names_twice.csv", "ids_twice.csv"):  # subjects may have several rows
        assert call(*words_for(command, place, place / name)).exit_code == 0
        return
    done = call(*words_for(command, place, place / name))
    if command == "inspect" and name in ("names_twice.csv", "ids_twice.csv"):
        assert done.exit_code == 0  # all problems are listed
        assert "Row ids repeat" in done.output
        return
    if command == "inspect" and name in ("word.csv", "two_texts.csv", "thousands.csv", "dates.parquet", "latin.csv"):
        assert done.exit_code == 0  # columns that are not numbers are named, with what to drop
        assert re.search(r"Not numbers: \w+ \(.*--drop \w+", done.output)
        return
    check(done, names=name)


@pytest.mark.parametrize("command", ["fit", "rank", "transform", "compare", "audit"])
@pytest.mark.parametrize("name", list(FITTING))
def test_files_that_do_not_fit(place, command, name):
    check(call(*words_for(command, place, place / name)), names=name.partition(".")[0])


OPTIONS = [
    ("--id", "zzz"), ("--columns", "zzz"), ("--sep", ";;"), ("--decimal", "x"), ("--sep", ",", "--decimal", ","),
    ("--missing", "maybe"), ("--scale", "size"), ("--scale", "quantile 3"), ("--select", "0"), ("--binarize", "-1"),
    ("--library-size", "0"), ("--library-size", "nan"), ("--tf-idf", "--scale", "rms"), ("--long",),
    ("--drop", "a,b,c,d"), ("--drop", "*"), ("--max-bytes", "1"), ("--missing", "unstored"),
    ("--columns", "a", "--drop", "a"),
    ("--layer", "counts", "--id", "nobody"), ("--sep", "tab", "--columns", "q"),
]  # fmt: skip


@pytest.mark.parametrize("words", OPTIONS, ids=" ".join)
@pytest.mark.parametrize("command", ["fit", "rank"])
def test_options_that_make_no_sense(place, command, words):
    if words[0] == "--max-bytes":
        words = (*words, "--quiet")
    check(
        call(
            *words_for(command, place, place / "good.csv")[:1],
            *words_for(command, place, place / "x")[3:],
            place / "good.csv",
            *words,
        )
    )


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "{}/absent.csv", "-k", 2, "-o", "{}/o"),
        ("fit", "{}", "-k", 2, "-o", "{}/good.csv"),
        ("fit", "{}/good.csv", "-k", 99, "-o", "{}/o"),
        ("fit", "{}/good.csv", "-k", 0, "-o", "{}/o"),
        ("fit", "{}/good.csv", "-k", 2, "-a", "nobody", "-o", "{}/o"),
        ("fit", "{}/good.csv", "-k", 2, "--set", "x", "-o", "{}/o"),
        ("fit", "{}/good.csv", "-k", 2, "--set", "x=1", "-o", "{}/o"),
        ("fit", "{}/good.csv", "{}/good.csv", "-k", 2, "-o", "{}/o"),
        ("fit", "{}/good.csv", "-k", 2, "-o", "{}/result"),
        ("fit", "{}/result/private", "-k", 2, "-o", "{}/o"),
        ("rank", "{}/good.csv", "-k", "x"),
        ("rank", "{}/good.csv", "-k", "5-2"),
        ("rank", "{}/good.csv", "-k", "2", "-o", "{}/no/where.json"),
        ("transform", "{}/result", "{}/good.csv", "-o", "{}/u.xlsx"),
        ("transform", "{}/result", "{}/good.csv", "-o", "{}/u.mtx"),
        ("transform", "{}/good.csv", "{}/good.csv", "-o", "{}/u.csv"),
        ("transform", "{}/absent", "{}/good.csv", "-o", "{}/u.csv"),
        ("compare", "{}/good.csv", "-k", 2, "-m", "nobody"),
        ("compare", "{}/good.csv", "-k", 2, "--share", 3),
        ("compare", "{}/good.csv", "-k", 99),
        ("compare", "{}/good.csv", "-k", 2, "-o", "{}/good.csv"),
        ("compare", "{}/absent.csv", "-k", 2),
        ("inspect", "{}"),
        ("inspect", "{}/absent.csv"),
        ("inspect", "{}/result"),
        ("export", "{}/result", "-o", "{}/v.xlsx"),
        ("export", "{}/result", "-o", "{}/no/v.csv"),
        ("export", "{}/result", "-o", "{}/v.csv", "--rows", "--owner", "nobody"),
        ("export", "{}/absent", "-o", "{}/v.csv"),
        ("export", "{}/good.csv", "-o", "{}/v.csv"),
        ("report", "{}/absent"),
        ("report", "{}"),
        ("report", "{}/good.csv"),
        ("report", "{}/result", "-o", "{}/no/report.html"),
        ("report", "{}/result", "-o", "{}/result"),
        ("recommend", "{}/result"),
        ("recommend", "{}/absent"),
        ("recommend", "{}/ratings", "--user", "nobody"),
        ("recommend", "{}/ratings", "--user", 1, "--owner", "nobody"),
        ("recommend", "{}/ratings", "--user", 1, "-o", "{}/r.xlsx"),
        ("recommend", "{}/ratings", "--user", 1, "-o", "{}/no/r.csv"),
        ("recommend", "{}/ratings", "-n", 0),
        ("predict", "{}/result", "--user", 1, "--item", 1),
        ("predict", "{}/ratings"),
        ("predict", "{}/ratings", "--user", 1),
        ("predict", "{}/ratings", "--user", 1, "--item", "zzz"),
        ("predict", "{}/ratings", "--user", "zzz", "--item", 1),
        ("predict", "{}/ratings", "--pairs", "{}/absent.csv"),
        ("predict", "{}/ratings", "--pairs", "{}/good.csv"),
        ("audit", "{}/absent.csv", "-k", 2, "-o", "{}/o"),
        ("audit", "{}/good.csv", "-k", 99, "-o", "{}/o"),
        ("audit", "{}/good.csv", "-k", 2, "-a", "nobody", "-o", "{}/o"),
        ("audit", "{}/good.csv", "-k", 2, "--canaries", -1, "-o", "{}/o"),
        ("doctor", "everything"),
        ("settings", "nobody"),
        ("reproduce", "nobody"),
        ("transform", "{}/ratings", "{}/good.csv", "-o", "{}/u.csv"),
        ("rank", "{}/good.csv", "-k", "1-3", "--share", 2),
        ("rank", "{}/good.csv", "-k", "1-3", "--repeats", 0),
        ("rank", "{}/good.csv", "-k", "1-3", "-a", "dsanls"),
        ("rank", "{}/good.csv", "-k", "1-99"),
        ("fit", "{}/good.csv", "-k", 2, "--privacy", "magic", "-o", "{}/o"),
        ("fit", "{}/good.csv", "-k", 2, "--privacy", "dp", "-o", "{}/o"),
        ("fit", "{}/good.csv", "-k", 2, "--participation", 7, "-o", "{}/o"),
        ("fit", "{}/good.csv", "-k", 2, "--rounds", 0, "-o", "{}/o"),
        ("fit", "{}/good.csv", "-k", 2, "--set", "ridge=strong", "-o", "{}/o"),
        ("federation", "join", "{}/good.csv"),
        ("info", "{}"),
        ("info", "{}/absent"),
        ("split", "{}/absent.npy", "{}/parts", "-n", 2),
        ("split", "{}/good.csv", "{}/parts", "-n", 2),
        ("split", "{}/noise.npz", "{}/parts", "-n", 2),
        ("split", "{}/tokens.npy", "{}/parts", "-n", 2),
        ("split", "{}/text.npy", "{}/parts", "-n", 2),
        ("split", "{}/one_d.npy", "{}/parts", "-n", 2),
        ("features", "{}/absent.csv"),
        ("features", "{}"),
        ("federation", "show", "{}/absent.toml"),
        ("federation", "show", "{}/bad.toml"),
        ("federation", "show", "{}/typed.toml"),
        ("federation", "show", "{}/date.toml"),
        ("federation", "show", "{}/word.toml"),
        ("federation", "show", "{}/good.csv"),
        ("federation", "show", "{}"),
        ("federation", "agree", "{}/bad.toml", "{}/bad.json"),
        ("federation", "add", "{}/typed.toml", "north", "{}/good.csv"),
        ("results", "{}", "-o", "{}/o"),
        ("results", "{}/absent", "-o", "{}/o"),
        ("status", "{}"),
        ("join", "{}/bad.toml", "--data", "{}/good.csv", "--key", "{}/good.csv", "--yes"),
        ("serve", "{}/absent.toml"),
        ("start", "{}/typed.toml"),
        ("stop", "{}/date.toml"),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_other_mistakes(place, words):
    check(call(*(str(word).replace("{}", str(place)) for word in words)))


@pytest.mark.parametrize(
    "record",
    [
        {"settings": 3}, {"settings": {"zzz": 1}}, {"settings": {"n_components": "x"}}, {"algorithm": "Nobody"},
        {"algorithm": 3}, {"preprocess": {"steps": 3}}, {"preprocess": {"steps": ["zoom"]}}, {"preprocess": {}},
        {"preprocess": {"steps": ["scale"], "weights": ["x"]}}, {"asked": {"missing_values": "maybe"}}, {"asked": 3},
    ],
    ids=str,
)  # fmt: skip
def test_records_that_were_changed(place, tmp_path, record):
    import shutil

    shutil.copytree(place / "result", tmp_path / "r")
    about = json.loads((tmp_path / "r" / "shared" / "run.json").read_text()) | record
    (tmp_path / "r" / "shared" / "run.json").write_text(json.dumps(about))
    check(call("transform", tmp_path / "r", place / "good.csv", "-o", tmp_path / "u.csv"))


def test_there_are_two_hundred():
    assert 8 * len(BAD) - 4 + 5 * len(FITTING) + 2 * len(OPTIONS) >= 400
