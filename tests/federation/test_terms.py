from __future__ import annotations

import copy
import tomllib

import pytest

from claims import _flower as real
from fedfactor.core.errors import IncompatibleError
from fedfactor.federation import keys, setup, terms_writer
from fedfactor.federation.features import write_names
from fedfactor.federation.terms import DEFAULTS, Terms, TermsError, check_party_name, features_hash
from fedfactor.federation.trial import Trial
from fedfactor.privacy.secure_aggregation.primitives import Identity


@pytest.fixture
def content(tmp_path):
    made = copy.deepcopy(DEFAULTS)
    made["features"] |= {"names": ["a", "b", 'ü "x"', "d", "e", "f"]}
    made["features"]["sha256"] = features_hash(made["features"]["names"])
    made["parties"] = {}
    for name in ("south", "north"):
        keys.make_key(tmp_path / f"{name}.key", name)
        made["parties"][name] = {"key": keys.public_line(tmp_path / f"{name}.key.pub")}
    return made


def second(content, **privacy):
    """Return the same content in format 2."""
    made = copy.deepcopy(content)
    made["federation"] |= {"format": 2, "id": "0123456789abcdef" * 2}
    made["privacy"] |= privacy
    return made


def test_format_2_is_written_and_read_and_format_1_knows_none_of_it(tmp_path, content):
    made = second(content, protect="secure-sum")
    made["parties"]["north"]["certificate"] = "ab" * 32
    terms = terms_writer.save(tmp_path / "federation.toml", made)
    assert Terms.read(tmp_path / "federation.toml").fingerprint == terms.fingerprint
    privacy = terms.content["privacy"]
    assert (privacy["protocol"], privacy["totals"], privacy["public_rows"]) == ("verified", "parties", 0)
    assert terms.id == "0123456789abcdef" * 2
    assert "Every party and the coordinator see the sum" in terms.notice
    assert "protocol" not in Terms.of(second(content)).content["privacy"]  # nothing is summed in secret
    first = Terms.of(content)
    assert (first.id, first.notice) == ("", "")
    for section, entry in (("federation", "id"), ("privacy", "public_rows"), ("features", "split")):
        assert entry not in first.content[section]
        with pytest.raises(TermsError, match="has no entry"):
            Terms.of({**content, section: {**content[section], entry: ""}})


@pytest.mark.parametrize(
    ("section", "entry", "value", "says"),
    [
        ("federation", "id", "", "32 hexadecimal"), ("federation", "id", 7, "32 hexadecimal"),
        ("features", "split", "cells", "'rows' or 'columns'"),
        ("privacy", "public_rows", -1, "at least 0"), ("privacy", "public_rows", 1.5, "at least 0"),
        ("privacy", "protocol", "shares", "must be 'verified'"), ("privacy", "totals", "coordinator", "'parties'"),
    ],
)  # fmt: skip
def test_mistakes_in_format_2_are_told(content, section, entry, value, says):
    made = second(content, protect="secure-sum")
    made[section][entry] = value
    with pytest.raises(TermsError, match=says):
        Terms.of(made)


def test_parties_that_hold_columns_need_an_algorithm_for_them(content):
    made = second(content)
    made["features"]["split"] = "columns"
    made["algorithm"] = {"name": "FELB", "n_components": 2}
    with pytest.raises(TermsError, match="split = 'columns': FELB"):
        Terms.of(made)


@pytest.mark.parametrize("certificate", ["ab", "Z" * 64, 7])
def test_the_key_of_a_certificate_is_a_digest_and_every_party_has_its_own(content, certificate):
    made = second(content)
    made["parties"]["north"]["certificate"] = certificate
    with pytest.raises(TermsError, match="certificate must be"):
        Terms.of(made)
    for name in made["parties"]:
        made["parties"][name]["certificate"] = "ab" * 32
    with pytest.raises(TermsError, match="same certificate"):
        Terms.of(made)


def test_a_search_in_the_clear_needs_a_public_number_of_rows(content):
    """Without it no party can tell a share of the rows from a single row."""
    made = second(content)
    made["algorithm"] = {"name": "PooledBMF", "n_components": 2}
    with pytest.raises(TermsError, match="public_rows"):
        Terms.of(made).agreement("north")
    made["privacy"]["public_rows"] = 450
    assert Terms.of(made).agreement("north").meta.n_rows == 450


def test_a_method_without_components_needs_none(content):
    made = {**content, "algorithm": {"name": "PooledEASE"}}
    assert Terms.of(made).content["algorithm"] == {"name": "PooledEASE"}
    assert Terms.of(made).algorithm().__class__.__name__ == "PooledEASE"


def test_what_is_written_is_what_is_read(tmp_path, content):
    terms = terms_writer.save(tmp_path / "federation.toml", content)
    assert terms.content == Terms.of(content).content
    assert terms.names == ("north", "south")
    assert terms.features[2] == 'ü "x"'
    assert terms.agreement("north").meta.n_features == 6
    assert Terms.of(tomllib.loads(terms_writer.dump(terms.content))).fingerprint == terms.fingerprint


@pytest.mark.parametrize(
    "odd", ["a\x7fb", "a.b", '"q"', "\\n", "a\nb", "tab\there", '"""x"""\n', "a\\\nb", "class", "[x]", "#", "x\r\n"]
)
def test_names_of_any_kind_survive_the_file(tmp_path, content, odd):
    content["features"] |= {"names": [odd, "b"], "sha256": features_hash([odd, "b"])}
    content["units"], content["federation"]["purpose"] = {odd: {"low": 1.0}}, f"{odd}\n{odd}"
    terms = terms_writer.save(tmp_path / "federation.toml", content)
    assert terms.features == (odd, "b")
    assert Terms.read(tmp_path / "federation.toml").content == terms.content
    assert list(terms.content["units"]) == [odd]
    assert terms.content["federation"]["purpose"] == f"{odd}\n{odd}"


def test_comments_do_not_change_the_fingerprint_and_everything_else_does(tmp_path, content):
    terms = terms_writer.save(tmp_path / "federation.toml", content)
    text = (tmp_path / "federation.toml").read_text()
    (tmp_path / "other.toml").write_text("# a remark\n" + text.replace("rounds = 20", "rounds   =   20"))
    assert Terms.read(tmp_path / "other.toml").fingerprint == terms.fingerprint
    for old, new in (
        ("rounds = 20", "rounds = 21"),
        ("minimum_rows = 0", "minimum_rows = 2"),
        ('"PooledNMF"', '"FNMF"'),
    ):
        (tmp_path / "other.toml").write_text(text.replace(old, new))
        other = Terms.read(tmp_path / "other.toml")
        assert other.fingerprint != terms.fingerprint
        assert len(other.differences(terms)) == 1


@pytest.mark.parametrize(
    ("section", "entry", "value", "said"),
    [
        ("federation", "format", 3, "format = 3"),
        ("run", "payload", "bf16", "payload"),
        ("run", "dtype", "int8", "dtype"),
        ("run", "rounds", 0, "rounds"),
        ("run", "colour", 1, "no entry 'colour'"),
        ("policy", "dropouts", "maybe", "dropouts"),
        ("privacy", "protect", "magic", "protect"),
        ("features", "how", "guess", "how"),
        ("features", "sha256", "0" * 64, "sha256"),
        ("algorithm", "name", "Nothing", "There is no algorithm 'Nothing'"),
        ("algorithm", "speed", 3, "no setting 'speed'"),
        ("preprocess", "steps", ["sqrt"], "no step 'sqrt'"),
        ("preprocess", "steps", ["tf-idf", "log1p"], "comes last"),
        ("preprocess", "steps", ["binarise -1"], "at least 0"),
        ("preprocess", "missing_values", "often", "missing_values"),
        ("server", "address", "nowhere", "host:port"),
        ("policy", "minimum", 3, "between 0"),
        ("policy", "deadline", 0, "deadline"),
        ("run", "seed", -1, "seed"),
        ("privacy", "minimum_rows", "many", "minimum_rows"),
        ("features", "absent", "nan", "absent"),
        ("privacy", "report_error", "false", "report_error"),
        ("privacy", "links", "Clip", "must be a list"),
        ("privacy", "links", [{"link": "Clipp"}], "no link 'Clipp'"),
        ("privacy", "links", [{"link": "Minimums"}], "no link 'Minimums'"),
        ("privacy", "links", [{"link": "Clip"}], "needs the setting 'norm'"),
        ("privacy", "links", [{"link": "Clip", "norm": 1.0, "unit": "row"}], "no setting 'unit'"),
        ("privacy", "links", [{"link": "PaperNoise"}], "report_error would report"),
        ("privacy", "minimum_rows", True, "minimum_rows"),
        ("run", "rounds", True, "rounds"),
        ("policy", "deadline", True, "deadline"),
        ("server", "address", "host:70000", "host:port"),
        ("server", "address", "klinik-süd.example:8000", "Write it as DNS does: xn--klinik-sd-x9a.example"),
    ],
)
def test_mistakes_are_told(tmp_path, content, section, entry, value, said):
    content[section][entry] = value
    (tmp_path / "federation.toml").write_text(terms_writer.dump(content))
    with pytest.raises(TermsError, match=said):
        Terms.read(tmp_path / "federation.toml")


@pytest.mark.parametrize("name", ["", "../../etc", "~root", ".ssh", "a/b", "a\\b", "x" * 65, "a\x1b[2J"])
def test_a_party_cannot_be_called_like_a_way_out(content, name):
    with pytest.raises(TermsError, match="cannot be a party's name"):
        check_party_name(name)
    content["parties"][name] = content["parties"]["north"]
    with pytest.raises(TermsError, match="cannot be a party's name"):
        Terms.of(content)


@pytest.mark.parametrize(("section", "value"), [("run", 3), ("privacy", ["none"]), ("parties", "north")])
def test_a_value_is_no_section(content, section, value):
    with pytest.raises(TermsError, match="must be a section"):
        Terms.of({**content, section: value})
    content["parties"]["north"] = "ecdsa"
    with pytest.raises(TermsError, match=r"parties\.north = \"ecdsa\" must be a section"):
        Terms.of(content)


@pytest.mark.parametrize("entry", ["key", "sign"])
def test_no_two_parties_are_one(content, entry):
    for party in content["parties"].values():
        party[entry] = "ab" * 32
    with pytest.raises(TermsError, match=f"'north' and 'south' have the same {entry}"):
        Terms.of(content)
    content["parties"]["north"][entry] = 3
    with pytest.raises(TermsError, match="must be a text"):
        Terms.of(content)


def test_a_higher_rank_asks_for_more_rows(tmp_path):
    words = {"address": "a:1", "algorithm": "pooled-nmf", "rounds": 3, "name": "", "purpose": "", "contact": ""}
    for rank, rows in ((5, 100), (20, 200)):
        file = setup.found(tmp_path / str(rank), rank=rank, own=None, **words)
        assert Terms.read(file).content["privacy"]["minimum_rows"] == rows


def test_a_secure_sum_is_refused_where_it_cannot_be(tmp_path, content):
    content["privacy"]["protect"] = "secure-sum"
    with pytest.raises(TermsError, match="needs 3 parties"):
        Terms.of(content).agreement()
    for name in ("north", "south", "west"):
        if name == "west":
            keys.make_key(tmp_path / "west.key", "west")
        file = tmp_path / f"{name}.key.pub"
        content["parties"][name] = {"key": keys.public_line(file), "sign": keys.signing_key(file)}
    agreed = Terms.of(content)
    assert agreed.policy().dropouts == "wait"
    mine = agreed.agreement("north")
    assert mine.registry["north"] == Identity(keys.identity_secret(tmp_path / "north.key")).public.hex()
    assert not mine.report_score
    for section, entry, value, said in (
        ("run", "payload", "float16", "payload"),
        ("preprocess", "steps", ["scale"], "column sums"),
        ("algorithm", "name", "AsynSD", "single uploads"),
        ("algorithm", "name", "FNMF", "must see each"),
    ):
        changed = copy.deepcopy(content)
        changed[section][entry] = value
        with pytest.raises((TermsError, IncompatibleError), match=said):
            Terms.of(changed).agreement()


def test_terms_cannot_write_over_what_they_say(content):
    content["federation"]["purpose"] = "good\x1b[1A\x1b[2Khidden"
    assert "\x1b" not in setup.words(Terms.of(content))


@pytest.mark.slow
def test_a_party_is_told_what_leaves_it(content):
    assert "UᵀU and UᵀX" in setup.words(Terms.of(content))
    content["algorithm"]["name"] = "FNMF"
    content["preprocess"]["steps"] = ["scale"]
    said = setup.words(Terms.of(content))
    assert "its factor as it is, and its weight" in said
    assert "the sums of your columns" in said
    assert "UᵀX" not in said
    content["features"] |= {"names": [], "sha256": ""}
    assert "once parties and columns are agreed on" in setup.words(Terms.of(content))


def test_an_unknown_section_and_a_file_that_is_no_toml(tmp_path, content):
    with pytest.raises(TermsError, match=r"no section \[extras\]"):
        Terms.of({**content, "extras": {}})
    (tmp_path / "x.toml").write_text("= 3")
    with pytest.raises(TermsError, match="is not TOML"):
        Terms.read(tmp_path / "x.toml")
    with pytest.raises(TermsError, match="is not there"):
        Terms.read(tmp_path / "y.toml")


@pytest.mark.slow
def test_from_nothing_to_agreed_terms(tmp_path):
    file = setup.found(
        tmp_path / "study", address="127.0.0.1:8000", algorithm="pooled-nmf", rank=2, rounds=3, name="", purpose="p",
        contact="c", own=None,
    )  # fmt: skip
    with pytest.raises(TermsError, match=r"\[parties\] is empty"):
        Terms.read(file).agreement()
    lists = []
    for name, columns in (("north", ["age", "weight", "x"]), ("south", ["weight", "age", "y"])):
        keys.make_key(tmp_path / f"{name}.key", name)
        setup.admit(file, name, tmp_path / f"{name}.key.pub")
        lists.append(write_names(tmp_path / f"{name}.features.json", columns))
    with pytest.raises(ValueError, match="--how intersection"):
        setup.agree_on(file, lists, "same", "zero")
    terms = setup.agree_on(file, lists, "union", "missing")
    assert terms.features == ("age", "weight", "x", "y")
    assert terms.meta().masked
    terms = setup.agree_on(file, lists, "intersection", "zero")
    assert terms.features == ("age", "weight")
    assert not terms.meta().masked
    assert "p" in setup.words(terms)
    with pytest.raises(ValueError, match="is the key of 'north' already"):
        setup.admit(file, "east", tmp_path / "north.key.pub")
    with pytest.raises(ValueError, match="there already"):
        setup.found(
            tmp_path / "study", address="a:1", algorithm="pooled-nmf", rank=2, rounds=3, name="", purpose="",
            contact="", own=None,
        )  # fmt: skip


def test_links_are_named_in_the_terms(tmp_path, content):
    plain = Terms.of(content)
    assert "links" not in plain.content["privacy"]  # terms without links keep the fingerprint they always had
    content["privacy"] |= {"links": [{"link": "Clip", "norm": 2.0}], "report_error": False}
    terms = terms_writer.save(tmp_path / "federation.toml", content)
    assert terms.fingerprint != plain.fingerprint
    agreement = terms.agreement("north")
    assert agreement.of(agreement.to_json()) == agreement
    channel = agreement.channel()
    assert channel is not None
    assert [(type(link).__name__, link.norm) for link in channel.links] == [("Clip", 2.0)]
    assert plain.agreement("north").channel() is None


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ([{"link": "Clip", "norm": -1.0}], "positive, finite norm"),
        ([{"link": "SecureSum"}], "protect = 'secure-sum'"),
    ],
)
def test_links_that_cannot_work_are_refused(content, links, said):
    content["privacy"] |= {"links": links, "report_error": False}
    with pytest.raises(TermsError, match=said):
        Terms.of(content).agreement("north")


@pytest.mark.slow
def test_a_party_is_told_what_happens_to_its_uploads_before_anybody_sees_them(content):
    content["privacy"] |= {"links": [{"link": "Clip", "norm": 1.5}]}
    assert "The server sees yours after Clip(norm=1.5)" in setup.words(Terms.of(content))
    content["privacy"] |= {"links": []}
    assert " after " not in setup.words(Terms.of(content))


def test_links_stand_in_an_order_that_protects(content):
    noise = {"link": "Gaussian", "noise_multiplier": 1.0, "sensitivity": 1.0, "whole": True, "share": "local"}
    content["privacy"] |= {"links": [noise, {"link": "Clip", "norm": 1.0}], "report_error": False}
    with pytest.raises(IncompatibleError, match="Set weights = 'mean'"):
        Terms.of(content).agreement("north")
    content["algorithm"]["weights"] = "mean"
    with pytest.raises(IncompatibleError, match="wrong order"):
        Terms.of(content).agreement("north")


@pytest.mark.slow
def test_consent_tells_rare_columns_that_are_left_out_from_those_that_are_not(content):
    for name in ("south", "north", "west"):
        content["parties"][name] = {**content["parties"]["north"], "key": content["parties"]["north"]["key"]}
    said = {}
    for rows in (0, 5):
        made = copy.deepcopy(content)
        made["privacy"] |= {"protect": "secure-sum", "column_rows": rows}
        terms = Terms({**Terms.of({**content, "parties": {}}).content, **made})
        said[rows] = [line for line in setup.words(terms).splitlines() if line.startswith("Rare columns")]
    assert said[0] != said[5]
    assert "fewer than 5 rows" in said[5][0]
    assert "the sum shows that row's part" in said[0][0]


@pytest.mark.parametrize(("protect", "told"), [("secure-sum", True), ("none", False)])
def test_other_parties_under_a_secure_sum_are_told_what_both_sums_show(tmp_path, protect, told):
    trial = Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 2))
    privacy = {**trial.terms.content["privacy"], "protect": protect, "allow": ["small-client"]}
    three = Terms.of({**trial.terms.content, "privacy": privacy})
    keys.make_key(tmp_path / "fourth.key", "fourth")
    new = {"key": keys.public_line(tmp_path / "fourth.key.pub"), "sign": keys.signing_key(tmp_path / "fourth.key.pub")}
    four = Terms.of({**three.content, "parties": {**three.content["parties"], "fourth": new}})
    for now, before in ((four, three), (three, four)):
        assert any("differ by what fourth sends" in line for line in now.differences(before)) == told
    assert not any("differ by what" in line for line in three.differences(three))
