"""Make and change ``federation.toml``, describe it in words, and try a federation."""

from __future__ import annotations

import copy
import json
import re
import secrets
import shutil
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.atomic_files import private_folder, read_json, write_atomic
from fedfactor.core.column_scales import needs_bins
from fedfactor.core.errors import DataError
from fedfactor.core.printable_text import printable
from fedfactor.federation import certificates, keys, terms_writer, vouching
from fedfactor.federation import column_ranges as units
from fedfactor.federation.coordinator import REMOVED
from fedfactor.federation.features import How, agree, read_names
from fedfactor.federation.fingerprint_words import key_words, terms_words
from fedfactor.federation.terms import DEFAULTS, FORMAT, Terms, features_hash, has_rank
from fedfactor.federation.trial import Trial
from fedfactor.network.coordinator_journal import Journal
from fedfactor.network.secure_aggregation import LEAST
from fedfactor.privacy.minimums import Minimums
from fedfactor.privacy.transform_registry import link_of

REVOKED = "revoked.json"
"""File in the server's folder: keys that count no more."""

LEFT = "left"
"""Reason of a party that left in order: its key may come back."""


def own_certificates(ca: Path | None, cert: Path | None, key: Path | None) -> tuple[Path, Path, Path] | None:
    """Take an organisation's own certificates: all three, or none."""
    if ca is None and cert is None and key is None:
        return None
    if ca is None or cert is None or key is None:
        raise DataError("Give --ca, --cert and --cert-key together, or none of them.")
    for file in (ca, cert, key):
        if not file.is_file():
            raise DataError(f"{file} is not there.")
    return ca, cert, key


def found(
    folder: Path,
    *,
    address: str,
    algorithm: str,
    rank: int,
    rounds: int,
    name: str,
    purpose: str,
    contact: str,
    own: tuple[Path, Path, Path] | None,
    privacy: Mapping[str, Any] | None = None,
    steps: Sequence[str] = (),
    missing: str = "none",
    settings: Sequence[str] = (),
    split: str = "rows",
) -> Path:
    """Write a new ``federation.toml`` and the server's certificates."""
    file = folder / "federation.toml"
    if file.exists():
        raise DataError(f"{file} is there already. Change it by hand, or choose another folder.")
    content: dict[str, Any] = copy.deepcopy(DEFAULTS)
    content["federation"] |= {"name": name or folder.resolve().name, "purpose": purpose, "contact": contact}
    content["federation"] |= {"format": FORMAT, "id": secrets.token_hex(16)}
    content["server"]["address"] = address
    content["algorithm"] = {"name": algorithm, **({"n_components": rank} if has_rank(algorithm) else {})}
    content["run"] |= {"rounds": rounds, "seed": secrets.randbits(31)}
    content["privacy"] |= {"minimum_rows": Minimums().rows_for(rank), **(privacy or {})}
    content["preprocess"] |= {"steps": list(steps), "missing_values": missing}
    content["features"]["split"] = split
    _set(content, settings)
    host = Terms.of({**content, "parties": {}}).address[0]
    server = private_folder(folder / "server")
    if own is None:
        authority = certificates.make_authority(server, content["federation"]["name"])
        certificates.make_server_certificate(server, [host])
    else:
        authority = own[0]
        write_atomic(server / "server.pem", own[1].read_bytes(), mode=0o644)
        write_atomic(server / "server.key", own[2].read_bytes(), mode=0o600)
    content["server"]["certificate"] = authority.read_text()
    terms_writer.save(file, content)
    Journal(server).write("founded", address=address)
    return file


def _set(content: dict[str, Any], settings: Sequence[str]) -> None:
    """Put ``SECTION.ENTRY=VALUE`` into the content of terms; :meth:`Terms.of` checks it as a whole afterwards.

    Examples
    --------
    >>> content = {"limits": {"runs": 10}, "algorithm": {"name": "PooledNMF"}}
    >>> _set(content, ["limits.runs=3", "algorithm.tol=1e-4", "algorithm.loss=kullback-leibler"])
    >>> content["limits"], content["algorithm"]
    ({'runs': 3}, {'name': 'PooledNMF', 'tol': 0.0001, 'loss': 'kullback-leibler'})
    """
    for word in settings:
        path, equals, text = word.partition("=")
        section, dot, entry = path.partition(".")
        if not (equals and dot and entry) or section not in DEFAULTS:
            raise DataError(
                f"{word!r} is not SECTION.ENTRY=VALUE, such as limits.runs=3. Sections: {', '.join(DEFAULTS)}."
            )
        try:
            value: Any = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text  # a text needs no quotation marks
        if hasattr(value, "isoformat"):
            value = text  # a day stays a text
        usual = DEFAULTS[section].get(entry)
        content[section][entry] = float(value) if isinstance(usual, float) and type(value) is int else value


def change(file: Path, settings: Sequence[str]) -> Terms:
    """Change terms; what they decide about parties and columns is changed by other commands."""
    content = copy.deepcopy(dict(Terms.read(file).content))
    for section, entries in DEFAULTS.items():
        content[section] = {**entries, **content.get(section, {})}
    _set(content, settings)
    terms = terms_writer.save(file, content)
    write_down(file, "changed", what=list(settings), terms=terms.fingerprint)
    return terms


def named_keys(given: Sequence[str]) -> list[tuple[str, Path]]:
    """Return whose key is in which file: a name and its file, or files that are called ``NAME.key.pub``.

    Examples
    --------
    >>> [(name, str(path)) for name, path in named_keys(["north.key.pub", "south.key.pub"])]
    [('north', 'north.key.pub'), ('south', 'south.key.pub')]
    """
    if len(given) == 2 and not given[0].endswith(".pub"):
        return [(given[0], Path(given[1]))]
    odd = [word for word in given if not word.endswith(".key.pub")]
    if odd:
        raise DataError(f"{odd[0]!r} is not called NAME.key.pub. Add that party alone: its name, then its file.")
    return [(Path(word).name.removesuffix(".key.pub"), Path(word)) for word in given]


def revoked(file: Path) -> list[dict[str, str]]:
    """Return the keys that count no more: of which party, since when, and why."""
    place = file.resolve().parent / "server" / REVOKED
    return read_json(place) if place.exists() else []


def revoke(file: Path, name: str, reason: str) -> None:
    """Note that the key of a party counts no more: it is not taken again."""
    line = Terms.read(file).content["parties"][name]["key"]
    place = file.resolve().parent / "server" / REVOKED
    if place.parent.is_dir():
        about = {"party": name, "key": line, "date": time.strftime("%Y-%m-%d", time.gmtime()), "reason": reason}
        write_atomic(place, json.dumps([*revoked(file), about], indent=1).encode())
        write_down(file, "key revoked", party=name, reason=reason)


def admit(file: Path, name: str, key: Path, vouched: Sequence[Path] = (), reason: str = "replaced") -> Terms:
    """Add a party, or give it a new key, which revokes its former one, with what others wrote to vouch for it."""
    content = copy.deepcopy(dict(Terms.read(file).content))
    line = keys.public_line(key)
    for old in revoked(file):
        if old["key"] == line and old["reason"] != LEFT:
            raise DataError(
                f"{key} was revoked on {old['date']} ({old['reason']}). Have the party make another key: fedfactor "
                "keygen."
            )
    twice = [other for other, party in content["parties"].items() if party["key"] == line and other != name]
    if twice:
        raise DataError(f"{key} is the key of {twice[0]!r} already. Every party needs its own.")
    if name in content["parties"] and content["parties"][name]["key"] != line:
        revoke(file, name, reason)
    content["parties"][name] = vouching.read_public(key)
    if vouched:
        content["parties"][name]["vouched"] = [path.read_text().strip() for path in vouched]
        terms = Terms.of(content)
        known = {other: party for other, party in content["parties"].items() if other != name}
        if len(vouching.vouchers(terms, name, known)) < len(vouched):
            raise DataError(f"Not all of what vouches for {name!r} is signed, for this name and key, by a party here.")
    terms = terms_writer.save(file, content)
    write_down(file, "added", party=name, key=words_of_key(terms, name))
    server = file.resolve().parent / "server"
    gone: list[str] = read_json(server / REMOVED) if (server / REMOVED).exists() else []
    if name in gone:
        write_atomic(server / REMOVED, json.dumps([other for other in gone if other != name]).encode())
    return terms


def write_down(file: Path, deed: str, **about: Any) -> None:
    """Add a line to the journal in the server's folder beside a ``federation.toml``, if there is one."""
    server = file.resolve().parent / "server"
    if server.is_dir():
        Journal(server).write(deed, **about)


def dismiss(file: Path, name: str) -> Terms:
    """Write a party out of the file, which makes it another agreement."""
    terms = Terms.read(file)
    if terms.secure and len(terms.names) <= LEAST:
        raise DataError(
            f"Without {name!r} there would be {len(terms.names) - 1} parties, and secure aggregation needs {LEAST}. "
            "Add another party first (fedfactor federation add), or found a new federation."
        )
    content = copy.deepcopy(dict(terms.content))
    del content["parties"][name]
    content["policy"]["minimum"] = min(content["policy"]["minimum"], len(content["parties"]))
    return terms_writer.save(file, content)


def declare_units(file: Path, table: Path) -> Terms:
    """Write the declared ranges of columns into the file."""
    content = copy.deepcopy(dict(Terms.read(file).content))
    content["units"] = units.read_units(table)
    terms = terms_writer.save(file, content)
    write_down(file, "units declared", ranges=len(content["units"]), terms=terms.fingerprint)
    return terms


def agree_on(file: Path, lists: Sequence[Path], how: How, absent: str) -> Terms:
    """Write the agreed columns into the file."""
    if absent not in ("zero", "missing"):
        raise DataError(f"--absent {absent!r} is not known. Use zero or missing.")
    columns = {path.name.removesuffix(".features.json"): read_names(path) for path in lists}
    return agree_on_lists(file, columns, how, absent)


def agree_on_lists(file: Path, lists: Mapping[str, Sequence[str]], how: How, absent: str) -> Terms:
    """Write the columns on which these lists agree into the file."""
    content = copy.deepcopy(dict(Terms.read(file).content))
    if content["features"].get("split") == "columns":
        how = "intersection"  # of rows, which all parties must have
    names = agree(lists, how)
    content["features"] |= {"how": how, "absent": absent, "sha256": features_hash(names), "names": list(names)}
    terms = terms_writer.save(file, content)
    write_down(file, "columns agreed", columns=len(names), how=how, terms=terms.fingerprint)
    return terms


def _sent(terms: Terms) -> list[str]:
    """Return what leaves a party, in the words of each kind of upload."""
    if not (terms.names and terms.features):
        return ["what the algorithm sends; shown here once parties and columns are agreed on"]
    algorithm = terms.agreement().make() if terms.noise else terms.algorithm()
    kinds = [kind for kind in algorithm.messages(terms.meta()) if hasattr(kind, "uplink")]
    texts = (" ".join((kind.__doc__ or kind.__name__).split()).split(". ``")[0] for kind in kinds)
    said = [re.sub(r"^Up[^:]*: ", "", text).replace("``", "").rstrip(".") for text in texts]
    if terms.preprocess().survey:
        sizes = " and how many of their cells have which size" if needs_bins(terms.preprocess().survey) else ""
        said.append(f"before the first round, the sums of your columns{sizes}")
    if terms.secure and not terms.noise:
        said.append("before the first round, how many of your rows fill each column")
    return said


def words(terms: Terms, *, spoken: bool = True) -> str:
    """Return what a party agrees to: all that decides what is computed of its rows, and what leaves it.

    ``spoken=False`` leaves out the fingerprint in words, where given words are to be compared with them.
    """
    c = terms.content
    policy = terms.policy()
    privacy = c["privacy"]
    runs, rounds, until, since = terms.limits
    steps = ", ".join(c["preprocess"]["steps"]) or "none"
    error = "; your error at the end" if privacy["report_error"] else ""
    after = " after " + " and ".join(repr(link_of(entry)) for entry in terms.links) if terms.links else ""
    seen = "The server sees only what all parties' add up to" if terms.secure else "The server sees yours"
    seen += ", with noise" if terms.noise else ""
    seen += f"{after}{'' if terms.secure else error}"
    settings = ", ".join(f"{k} = {v}" for k, v in c["algorithm"].items() if k != "name")
    run = f"{c['run']['rounds']} rounds, {c['run']['payload']}, {c['run']['dtype']}"
    below = " (below the usual rule, as agreed)" if privacy["allow"] else ""
    most = f" and {rounds} rounds in all of them" if rounds else ""
    last = (f", from {since}" if since else "") + (f", until {until}" if until else "")
    last += f"; what was sent and got is deleted after {terms.keep} days" if terms.keep else ""
    lines = [
        f"Federation   {c['federation']['name']}: {c['federation']['purpose'] or 'no purpose given'}",
        f"Contact      {c['federation']['contact'] or 'none given'}",
        f"Server       {c['server']['address']}",
        f"Parties      {', '.join(terms.names) or 'none yet'}",
        f"Computes     {c['algorithm']['name']} ({settings}), {run}, seed {c['run']['seed']}",
        *([f"Starts at    the components {terms.start} of an earlier version"] if terms.start else []),
        *(_rows_in_common(terms) if terms.by_columns else _features(terms)),
        *(
            f"Units        {units.words(c[part])}; compared here, nothing of it is sent"
            for part in ("units",)
            if part in c
        ),
        f"Before it    {steps}; missing cells: {c['preprocess']['missing_values']}",
        *(f"{'' if i else 'Leaves you':12} {what}" for i, what in enumerate((*_sent(terms), f"Never a row. {seen}"))),
        *_noise(terms),
        *_rare(terms),
        f"Refused      who has fewer than {terms.least_rows} {'columns' if terms.by_columns else 'rows'}{below}",
        f"Limits       you answer at most {runs} runs{most} of this algorithm with these settings, and count them "
        f"yourself{last}",
        f"Drop-outs    {policy.dropouts}; a round needs {policy.minimum} and waits {policy.deadline:g} s",
        f"Fingerprint  {terms.fingerprint}",
        *([f"In words     {terms_words(terms.fingerprint)}"] if spoken else []),
    ]
    return "\n".join(map(printable, lines))


def _features(terms: Terms) -> list[str]:
    features = terms.content["features"]
    return [
        f"Columns      {len(terms.features)} ({_columns(features)}), fingerprint {features['sha256'][:16]}",
        f"             {_names(terms.features)}",
    ]


def _rows_in_common(terms: Terms) -> list[str]:
    """Describe what parties that hold columns learn of each other's rows."""
    return [
        f"Rows         {len(terms.features)} that all parties have, named by hashes of their ids, fingerprint "
        f"{terms.content['features']['sha256'][:16]}",
        "             every party learns which of its rows all others have, too",
        "Columns      those of your file; their names and your part of V stay with you",
        "U            a vector for each common row, which every party and the coordinator sees: the party that "
        "knows some "
        "columns of a row can predict others from it",
    ]


def _names(features: Sequence[str]) -> str:
    """List columns by name; all of them are in the file."""
    shown = ", ".join(features[:30])
    return f"{shown}, and {len(features) - 30} more, see [features]" if len(features) > 30 else shown


def _columns(features: Any) -> str:
    return f"union; absent ones are {features['absent']}" if features["how"] == "union" else str(features["how"])


def _noise(terms: Terms) -> list[str]:
    """Describe the guarantee of the noise, the protected unit, and its assumptions."""
    noise = terms.noise
    if not noise:
        return []
    unit = noise["unit"]
    cap = noise["cap"]
    known = noise["known_to"]
    whom = "your part as a whole" if unit == "client" else f"each {unit}"
    if unit == "subject":
        whom += f" named by {noise['subject']} (at most {cap} of its rows, at {known} of the parties)"
    if unit == "client":
        bound = f"your upload is cut to a norm of {noise['clip']:g}"
    else:
        bound = f"rows are cut to a norm of {noise['row_bound']:g}; {noise['rows']:g} rows in all are assumed"
    return [
        f"Noise        ε = {noise['epsilon']:g}, δ = {noise['delta']:g} for {whom}, in one run of all its rounds",
        f"{'':12} {bound}",
        *(
            f"{'':12} each of {len(terms.names)} parties adds noise of {share:.4g} times the bound"
            for share in (terms.noise_share,)
            if share
        ),
        f"{'':12} holds unless more than {noise['colluding']} parties reveal their noise to the server; all must be "
        f"there",
        f"{'':12} your own ledger counts what your rows have cost, and refuses what is beyond their budget",
    ]


def _rare(terms: Terms) -> list[str]:
    """Return which columns are left out of secure aggregation, and what it means when none is."""
    if not terms.secure or terms.noise:
        return []
    rows, parties = (terms.content["privacy"][entry] for entry in ("column_rows", "column_parties"))
    if rows < 2:
        said = f"only a column of fewer than {parties} parties" if parties > 1 else "NO COLUMN"
        return [f"Rare columns {said} is left out: where one row fills a column, the sum shows that row's part"]
    return [f"Rare columns those that fewer than {rows} rows, or {parties} parties, fill are left out of the sums"]


def words_of_key(terms: Terms, name: str) -> str:
    """Return a party's name and keys in words."""
    return key_words(name, terms.content["parties"][name])


def keys_in_words(terms: Terms) -> str:
    """Return each party's name and keys in words, one line each."""
    return "\n".join(printable(f"{name}: {key_words(name, p)}") for name, p in terms.content["parties"].items())


def invent(folder: Path, parties: Sequence[str] = ("north", "south", "west"), seed: int = 0) -> dict[str, Path]:
    """Write invented rows for a trial: counts of twelve features, with four patterns common to all."""
    rng = np.random.default_rng(seed)
    patterns = rng.gamma(0.6, 1.0, (4, 12))
    files: dict[str, Path] = {}
    for name in parties:
        counts = rng.poisson(3 * rng.gamma(0.5, 1.0, (120, 4)) @ patterns)
        files[name] = folder / f"{name}.csv"
        head = ",".join(f"feature {j}" for j in range(12))
        files[name].write_text("\n".join([head, *(",".join(map(str, row)) for row in counts)]) + "\n")
    return files


SHARED = 20
"""Parties of a trial in one process, when there are many."""


def try_out(
    folder: Path,
    data: Sequence[Path],
    algorithm: str,
    rank: int,
    rounds: int,
    patience: float,
    say: Callable[[str], Any],
    parties: int = 3,
) -> None:
    """Run a federation of three (or more, or as many as there are files) on this machine, saying what happens.

    More than three share processes, twenty to one.
    """
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder} is not empty. Choose a new folder.")
    began = time.monotonic()
    private_folder(folder)
    invented = (f"party-{i:03d}" for i in range(parties)) if parties > 3 else ("north", "south", "west")[:parties]
    files = {path.name.split(".")[0]: path for path in data} or invent(folder, tuple(invented))
    changes = {
        "algorithm": {"name": algorithm, "n_components": rank},
        "run": {"rounds": rounds},
        "policy": {"gather": patience, "deadline": patience},
    }
    trial = Trial(folder, files, changes)
    say(f"Terms in {trial.toml}; keys and certificates made.")
    with trial:
        say(f"[{time.monotonic() - began:3.0f} s] Server at {trial.terms.content['server']['address']}, keys known.")
        names = list(files)
        if len(names) <= 3:
            for name in names:
                trial.join(name)
        for start in range(0, len(names), SHARED) if len(names) > 3 else ():
            trial.join_together(names[start : start + SHARED])
        trial.coordinator.start()
        say(f"[{time.monotonic() - began:3.0f} s] {len(files)} parties join; the run begins.")
        ended = trial.coordinator.wait(patience)
        say(f"[{time.monotonic() - began:3.0f} s] {ended['state']} after {ended['round']} rounds.")
    if ended["state"] != "finished":
        raise DataError(f"The run did not finish. Look at the logs in {folder}.")
    from fedfactor.federation.results import write_result

    for name in files:
        out = folder / "results" / name
        if out.exists():
            shutil.rmtree(out)
        write_result(trial.folder(name), out)
    say(f"Each party's V and own U are in {folder / 'results'}; what each one sent is in NAME/sent.jsonl.")
