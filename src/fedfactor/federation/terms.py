"""``federation.toml``: what every party agrees to, checked as a whole, known by one fingerprint."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.algorithm_names import algorithm_class
from fedfactor.core.algorithm import Algorithm, Meta, settings_of
from fedfactor.core.errors import DataError, FedfactorError, IncompatibleError
from fedfactor.core.parameters import with_tuples
from fedfactor.core.pytree import is_list, is_mapping
from fedfactor.engines.capabilities import SupportsWarmStart, for_columns
from fedfactor.engines.engine import check_fit, refuse_groups
from fedfactor.federation.column_ranges import check_entries
from fedfactor.io.preprocessing import DECLARED, Preprocess
from fedfactor.network.client_storage import PUBLIC, Agreement
from fedfactor.network.secure_aggregation import LEAST, uploads
from fedfactor.network.waiting_rules import WaitingRules
from fedfactor.privacy.minimums import Minimums
from fedfactor.privacy.modes import Protection

FORMAT = 2
"""Newest format of the file; files of format 1 are read, and keep their fingerprints."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "federation": {"format": 1, "name": "", "purpose": "", "contact": ""},
    "server": {"address": "127.0.0.1:8000", "certificate": ""},
    "algorithm": {"name": "PooledNMF", "n_components": 5},
    "run": {"rounds": 20, "seed": 0, "payload": "exact", "dtype": "float64", "threads": 1, "start": ""},
    "policy": {"minimum": 0, "dropouts": "continue", "deadline": 600, "gather": 600, "resend": 60, "absent": 60},
    "privacy": {
        "protect": "none",
        "minimum_rows": 0,
        "allow": [],
        "column_rows": 5,
        "column_parties": 2,
        "report_error": True,
        "links": [],
    },
    "limits": {"runs": 10, "rounds": 0, "until": "", "since": "", "keep": 0},
    "features": {"how": "same", "absent": "zero", "sha256": "", "names": []},
    "units": {},
    "preprocess": {"missing_values": "none", "steps": []},
}

NOISE: dict[str, Any] = {
    "epsilon": 0.0,
    "delta": 1e-5,
    "unit": "row",
    "row_bound": 0.0,
    "rows": 0.0,
    "clip": 0.0,
    "subject": "",
    "cap": 1,
    "known_to": 1,
    "colluding": 1,
}
"""Further entries of [privacy] with protect = "dp", as :func:`fedfactor.dp` explains them; 0 and "" are not given."""

SECOND: dict[str, dict[str, Any]] = {
    "federation": {"id": ""},
    "features": {"split": "rows"},
    "privacy": {"public_rows": 0},
}
"""Further entries in format 2: a random identifier of the federation; what parties hold, rows or columns; the number
of rows of all parties where it may be public (0: not public)."""

SUMS = {"protocol": "verified", "totals": "parties"}
"""Further entries of [privacy] in format 2 where uploads are summed in secret: how, and who sees the totals."""

FREE = ("algorithm", "units")
"""Sections whose entries are not known beforehand."""


LATER = (("run", "start"), ("policy", "absent"), ("privacy", "links"), ("limits", "since"), ("limits", "keep"))
"""Entries that came later: omitted while they have the default, so that older terms keep their fingerprint."""

INSTEAD = f"Leave it out, or scale by public ranges: {DECLARED!r} in [preprocess], and fedfactor federation units."

_START = re.compile("sha256:[0-9a-f]{64}")
_VOUCHED = {1: re.compile(r".{1,64} [0-9a-f]{128}"), 2: re.compile(r".{1,64} [0-9a-f]{128} \d{4}-\d\d-\d\d")}
"""A party that vouches for another one, and its signature; in format 2 also the last day on which it counts."""

_ID = re.compile("[0-9a-f]{32}")
_CERTIFICATE = re.compile("([0-9a-f]{64})?")


class TermsError(FedfactorError, ValueError):
    """A ``federation.toml`` that cannot be used, or that differs from what a party signed up for."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The content of one ``federation.toml``."""

    content: Mapping[str, Any]

    @classmethod
    def read(cls, path: str | Path) -> Terms:
        """Read and check a file.

        Raises
        ------
        TermsError
            What is wrong, where, and what to do.
        """
        path = Path(path)
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise TermsError(f"{path} is not there. Make one with: fedfactor federation init") from None
        except OSError as error:
            raise TermsError(
                f"{path} cannot be read ({error.strerror}). Give the federation.toml of all parties."
            ) from None
        except RecursionError:
            raise TermsError(f"{path} is nested too deeply to be read. Ask for the file again.") from None
        except ValueError as error:  # TOML's own, text that is no UTF-8, dates and numbers that cannot be
            raise TermsError(f"{path} is not TOML ({error}). Ask for the file again.") from None
        try:
            return cls.of(raw)
        except (TermsError, DataError) as error:
            raise TermsError(f"{path}: {error}") from None
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            # An entry of another kind than its name promises: a list for a number, a date for a text.
            raise TermsError(
                f"{path}: an entry has a value of the wrong kind ({error}). Ask for the file again."
            ) from None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Terms:
        """Check plain content and fill in what was left out."""
        odd = sorted(set(raw) - set(DEFAULTS) - {"parties"})
        if odd:
            raise TermsError(f"there is no section [{odd[0]}]. The sections are {', '.join(DEFAULTS)} and parties.")
        _check_tables(raw)
        content: dict[str, Any] = {}
        second = dict(raw.get("federation", {})).get("format", 1) != 1
        for section, known in DEFAULTS.items():
            given = dict(raw.get(section, {}))
            if section == "privacy" and given.get("protect") == "dp":
                known = {**known, **NOISE}
            if second:
                known = {**known, **SECOND.get(section, {})}
                if section == "privacy" and given.get("protect", "none") != "none":
                    known = {**known, **SUMS}
            if section not in FREE and set(given) - set(known):
                strange = sorted(set(given) - set(known))[0]
                raise TermsError(f"[{section}] has no entry {strange!r}. Its entries are {', '.join(known)}.")
            content[section] = {**known, **given}
        if "n_components" not in dict(raw.get("algorithm", {})) and not has_rank(str(content["algorithm"]["name"])):
            del content["algorithm"]["n_components"]
        for section, entry in LATER:
            if content[section][entry] == DEFAULTS[section][entry]:
                del content[section][entry]
        if not content["units"]:
            del content["units"]
        content["parties"] = {name: dict(party) for name, party in sorted(dict(raw.get("parties", {})).items())}
        terms = cls(content)
        terms._check()
        return terms

    def _check(self) -> None:
        c = self.content
        if c["federation"]["format"] not in (1, FORMAT):
            known = f"this version reads 1 to {FORMAT}"
            raise TermsError(f"format = {c['federation']['format']} is not known here; {known}.")
        self._check_second()
        if c["run"]["payload"] not in ("exact", "float16"):
            raise TermsError("[run] payload must be 'exact' or 'float16'.")
        if c["run"]["dtype"] not in ("float32", "float64"):
            raise TermsError("[run] dtype must be 'float32' or 'float64'.")
        for entry in ("rounds", "threads"):
            if type(c["run"][entry]) is not int or c["run"][entry] < 1:
                raise TermsError(f"[run] {entry} = {c['run'][entry]!r} must be a whole number of at least 1.")
        if c["policy"]["dropouts"] not in ("continue", "wait"):
            raise TermsError("[policy] dropouts must be 'continue' or 'wait'.")
        if c["privacy"]["protect"] not in list(Protection):
            raise TermsError("[privacy] protect must be 'none', 'secure-sum' or 'dp'.")
        if c["features"]["how"] not in ("same", "union", "intersection"):
            raise TermsError("[features] how must be 'same', 'union' or 'intersection'.")
        names = c["features"]["names"]
        if c["features"]["absent"] not in ("zero", "missing"):
            raise TermsError("[features] absent must be 'zero' or 'missing'.")
        if names and c["features"]["sha256"] != features_hash(names):
            raise TermsError("[features] sha256 is not that of the names. A party changed one and not the other.")
        if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
            raise TermsError("[features] names must be different texts.")
        if wrong := check_entries(c.get("units", {}), names):
            raise TermsError(wrong + ".")
        self._check_numbers()
        self._check_parties()
        _ = self.links
        _ = self.address
        self.preprocess()
        self.algorithm()
        if self.noise:
            self._check_noise()
        self._check_start()

    def _check_second(self) -> None:
        """Check the entries that format 2 added."""
        c = self.content
        if c["federation"]["format"] == 1:
            return
        if not isinstance(c["federation"]["id"], str) or not _ID.fullmatch(c["federation"]["id"]):
            raise TermsError("[federation] id must be 32 hexadecimal digits, drawn once: fedfactor federation init.")
        if c["features"]["split"] not in ("rows", "columns"):
            raise TermsError("[features] split must be 'rows' or 'columns': what each party holds.")
        if self.by_columns:
            self._check_columns()
        rows = c["privacy"]["public_rows"]
        if type(rows) is not int or rows < 0:
            raise TermsError(f"[privacy] public_rows = {rows!r} must be a whole number of at least 0.")
        if c["privacy"].get("protocol", "verified") != "verified":
            raise TermsError("[privacy] protocol must be 'verified': every party checks the question and the total.")
        if c["privacy"].get("totals", "parties") != "parties":
            raise TermsError("[privacy] totals must be 'parties': the party that checks a total sees it.")

    def _check_columns(self) -> None:
        """Reject what does not go with parties that hold columns, whose agreed features are hashed ids of rows."""
        c = self.content
        try:
            for_columns(self.algorithm())
        except IncompatibleError as error:
            raise TermsError(f"[features] split = 'columns': {error}") from None
        if self.noise:
            raise TermsError(
                "[features] split = 'columns': noise would protect columns, not the rows that ids stand for."
            )
        if c["preprocess"]["steps"] or c.get("units"):
            raise TermsError(
                "[features] split = 'columns': no party can apply [preprocess] steps or [units] to columns of others. "
                "Each party prepares its own columns before it joins."
            )

    def _check_start(self) -> None:
        """Refuse a start that no version can be, and one where it has no place."""
        if not self.start:
            return
        if type(self.start) is not str or not _START.fullmatch(self.start):
            raise TermsError(
                f"[run] start = {self.start!r} is no fingerprint of components. Use fedfactor federation next."
            )
        if self.content["run"]["payload"] != "exact":
            raise TermsError("[run] start names components to the bit, which payload = 'float16' would round.")
        if self.noise:
            raise TermsError(
                "[run] start names components that rows have shaped, and epsilon would not count what they reveal. "
                "Leave it out where noise protects a run."
            )
        if not isinstance(self.algorithm(), SupportsWarmStart):
            raise TermsError(f"{type(self.algorithm()).__name__} cannot start at components of an earlier run.")

    def _check_numbers(self) -> None:
        run = self.content["run"]
        policy = self.content["policy"]
        privacy = self.content["privacy"]
        if type(run["seed"]) is not int or not 0 <= run["seed"] < 1 << 63:
            raise TermsError(f"[run] seed = {run['seed']!r} must be a whole number from 0 to 2**63 - 1.")
        for entry in ("deadline", "gather", "resend", *(("absent",) if "absent" in policy else ())):
            if type(policy[entry]) not in (int, float) or not 0 < policy[entry] < 1e9:
                raise TermsError(f"[policy] {entry} = {policy[entry]!r} must be a number of seconds above 0.")
        most = len(self.names)
        if type(policy["minimum"]) is not int or policy["minimum"] < 0 or (most and policy["minimum"] > most):
            raise TermsError(f"[policy] minimum = {policy['minimum']!r} must lie between 0 and {most} parties.")
        for entry in ("minimum_rows", "column_rows", "column_parties"):
            if type(privacy[entry]) is not int or privacy[entry] < 0:
                raise TermsError(f"[privacy] {entry} = {privacy[entry]!r} must be a whole number of at least 0.")
        if not isinstance(privacy["allow"], list) or set(privacy["allow"]) - {"small-client", "removal"}:
            raise TermsError(f"[privacy] allow = {privacy['allow']!r} can hold 'small-client' and 'removal' only.")
        self._check_limits()
        if not isinstance(privacy["report_error"], bool):  # the text "false" would count as yes
            raise TermsError(f"[privacy] report_error = {privacy['report_error']!r} must be true or false.")

    def _check_limits(self) -> None:
        limits = self.content["limits"]
        for entry, least in (("runs", 1), ("rounds", 0), ("keep", 0)):
            value = limits.get(entry, 0)
            if type(value) is not int or value < least:
                raise TermsError(f"[limits] {entry} = {value!r} must be a whole number of at least {least}.")
        for entry in ("since", "until"):
            value = limits.get(entry, "")
            try:
                _ = value == "" or date.fromisoformat(value)
            except (TypeError, ValueError):
                raise TermsError(f"[limits] {entry} = {value!r} must be a day such as '2030-12-31'.") from None

    def _check_parties(self) -> None:
        for name, party in self.content["parties"].items():
            if set(party) - {"sign", "vouched", *(("certificate",) if self.id else ())} != {"key"}:
                raise TermsError(f"[parties.{name}] needs the entry key, and for secure aggregation the entry sign.")
            check_party_name(name)
            signed: list[Any] = party.get("vouched", [])
            form = _VOUCHED[self.content["federation"]["format"]]
            if not is_list(signed) or not all(isinstance(s, str) and form.fullmatch(s) for s in signed):
                raise TermsError(f"[parties.{name}] vouched is not what fedfactor vouch writes. Add the party again.")
        for entry in ("key", "sign", "certificate"):
            owner: dict[str, str] = {}
            for name, party in self.content["parties"].items():
                if entry == "certificate" and not _CERTIFICATE.fullmatch(str(party.get(entry, ""))):
                    raise TermsError(f"[parties.{name}] certificate must be the SHA-256 of its certificate's key.")
                if not isinstance(party.get(entry, ""), str):
                    raise TermsError(f"[parties.{name}] {entry} must be a text. Add the party with its .pub file.")
                if entry == "sign" and not re.fullmatch("([0-9a-f]{64})?", party.get(entry, "")):
                    raise TermsError(f"[parties.{name}] sign is no signing key. Add the party with its .pub file.")
                if party.get(entry) and (other := owner.setdefault(party[entry], name)) != name:
                    raise TermsError(f"{other!r} and {name!r} have the same {entry}. Every party needs its own.")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the content: comments and layout do not count, everything else does."""
        text = json.dumps(self.content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def id(self) -> str:
        """Random identifier of the federation; empty in format 1."""
        return self.content["federation"].get("id", "")

    @property
    def notice(self) -> str:
        """Describe what the parties and the coordinator see of sums, for a party that is asked to join; empty in the
        clear.
        """
        if not self.secure:
            return ""
        told = "sum of all uploads" + (" with noise" if self.noise else "")
        told += ", and U, which describes every common row," if self.by_columns else ""
        alone = len(self.names) - 1
        return (
            f"Every party and the coordinator see the {told} in every round, and no single upload. Parties compute the "
            "next question themselves and answer no other. "
            + ("" if self.noise else f"{alone} parties together can read the upload of the last one. ")
            + "A party that lies about its upload can steer the next question, and a coordinator together with one "
            "party can choose it: "
            + ("the noise still holds." if self.noise else "without noise (protect = 'dp') they can read single rows.")
        )

    @property
    def start(self) -> str:
        """Fingerprint of the components that a run starts at; empty when it begins again."""
        return self.content["run"].get("start", "")

    @property
    def names(self) -> tuple[str, ...]:
        """The parties, sorted."""
        return tuple(sorted(self.content["parties"]))

    @property
    def features(self) -> tuple[str, ...]:
        """The agreed columns."""
        return tuple(self.content["features"]["names"])

    @property
    def consents_to_removal(self) -> bool:
        """Whether sums before and after a party left may both be seen; their difference is what it sent."""
        return not self.secure or bool(self.noise) or "removal" in self.content["privacy"]["allow"]

    @property
    def by_columns(self) -> bool:
        """Whether parties hold columns of the same rows; the agreed features are then hashed ids of these rows."""
        return self.content["features"].get("split", "rows") == "columns"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the server."""
        host, _, port = str(self.content["server"]["address"]).rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise TermsError(f"[server] address = {self.content['server']['address']!r} must be host:port.")
        if not host.isascii():
            raise TermsError(f"[server] address = {host!r} has letters that DNS does not know. {_ascii(host)}")
        return host.strip("[]"), int(port)

    def algorithm(self) -> Algorithm:
        """Build the agreed algorithm."""
        settings = dict(self.content["algorithm"])
        try:
            cls = algorithm_class(str(settings.pop("name")))
        except ValueError as error:
            raise TermsError(str(error)) from None
        known = {field.name: field for field in fields(cls)}
        odd = sorted(set(settings) - set(known))
        if odd:
            raise TermsError(f"{cls.__name__} has no setting {odd[0]!r}. Its settings are {', '.join(known)}.")
        lacking = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
        lacking = [name for name in lacking if name not in settings]
        if lacking:
            raise TermsError(f"[algorithm] lacks {lacking[0]!r}, which {cls.__name__} needs.")
        return cls(**with_tuples(settings))

    def preprocess(self) -> Preprocess:
        """Build the agreed preprocessing."""
        return Preprocess.of(self.content["preprocess"])

    def declared_weights(self) -> np.ndarray | None:
        """Return what each column is multiplied by where the terms scale by declared ranges: public numbers."""
        plan = self.preprocess()
        units = self.content.get("units", {})
        if not plan.declared:
            return None
        lacking = [name for name in self.features if not units.get(name, {}).get("high", 0) > 0]
        if lacking:
            raise TermsError(
                f"[preprocess] {DECLARED!r} divides each column by the upper end of its range, and {lacking[0]!r} has "
                "none above 0. Declare one for every column with: fedfactor federation units"
            )
        return 1.0 / plan.apply(np.array([[float(units[name]["high"]) for name in self.features]]))[0]

    def meta(self) -> Meta:
        """Return what every party may know before round 0."""
        masked = self.preprocess().missing_values is not None or self._absent_is_missing
        rows = self.content["privacy"].get("public_rows") or None
        return Meta(len(self.features), self.names, self.content["run"]["dtype"], masked, rows)

    @property
    def _absent_is_missing(self) -> bool:
        return self.content["features"]["how"] == "union" and self.content["features"]["absent"] == "missing"

    def policy(self) -> WaitingRules:
        """Who must take part; where no number was agreed, more than half, or every party where none may be missing."""
        given = dict(self.content["policy"])
        most = len(self.names)
        given["minimum"] = given["minimum"] or (most // 2 + 1 if given["dropouts"] == "continue" else most)
        if self.secure:  # two sums of different cohorts would show what the one who left had sent
            given |= {"minimum": len(self.names), "dropouts": "wait"}
        return WaitingRules(**given)

    @property
    def secure(self) -> bool:
        """Whether the server sees only sums."""
        return self.content["privacy"]["protect"] != "none"

    @property
    def noise(self) -> dict[str, Any]:
        """Budget, unit and bounds in the words of :func:`fedfactor.dp`; empty when no noise was agreed on."""
        privacy = self.content["privacy"]
        if privacy["protect"] != "dp":
            return {}
        absent = {name for name in ("row_bound", "rows", "clip", "subject") if privacy[name] == NOISE[name]}
        return {name: privacy[name] for name in NOISE if name not in absent}

    def _check_noise(self) -> None:
        """Refuse noise that could not protect any choice of participants."""
        from fedfactor.privacy.dp import against_noise, dp

        privacy = self.content["privacy"]
        for entry, usual in NOISE.items():
            number = isinstance(usual, float) and type(privacy[entry]) is int
            if not number and type(privacy[entry]) is not type(usual):
                raise TermsError(f"[privacy] {entry} = {privacy[entry]!r} must be like {usual!r}.")
        if privacy.get("links"):
            raise TermsError("[privacy] protect = 'dp' brings its own bound and noise: leave links out.")
        if self.preprocess().survey:
            raise TermsError(f"{self.preprocess().survey} needs sums of columns, which no noise covers. {INSTEAD}")
        if privacy["unit"] != "client" and not (privacy["row_bound"] and privacy["rows"]):
            raise TermsError(
                f"[privacy] unit = {privacy['unit']!r} needs row_bound and rows: public numbers, not measured on the "
                "parties' rows."
            )
        if privacy["delta"] * max(privacy["rows"], len(self.names)) >= 1:
            raise TermsError(
                f"[privacy] delta = {privacy['delta']:g} is no promise: with that chance it may fail for each of "
                f"{max(privacy['rows'], len(self.names)):g} units. Take far less than one over their number."
            )
        algorithm = self.algorithm()
        against = against_noise(algorithm)
        if against:
            raise TermsError(f"{type(algorithm).__name__} does not bear noise: {against}")
        try:
            dp(**self.noise)
        except ValueError as error:
            raise TermsError(f"[privacy] {error}") from None

    @property
    def guarded(self) -> bool:
        """Whether parties protect their uploads in a way that rests on who the others are, or that they pay for."""
        return self.secure or bool(self.content["privacy"].get("links"))

    @property
    def least_rows(self) -> int:
        """Fewest rows with which a party may take part: as agreed, or by the rule that simulations keep to as well."""
        k = int(self.content["algorithm"].get("n_components", 0))
        return max(int(self.content["privacy"]["minimum_rows"]) or Minimums().rows_for(k), k + 1)

    @property
    def limits(self) -> tuple[int, int, str, str]:
        """Runs, rounds in all of them (0: as many as each run has), the last day and the first."""
        limits = self.content["limits"]
        return limits["runs"], limits["rounds"], limits["until"], limits.get("since", "")

    @property
    def keep(self) -> int:
        """Days that a party keeps what it sent and what it got; 0: until it forgets by itself."""
        return self.content["limits"].get("keep", 0)

    @property
    def links(self) -> tuple[dict[str, Any], ...]:
        """What becomes of an upload at its party, in order: links by name, each with its settings."""
        given: Any = self.content["privacy"].get("links", [])
        if not is_list(given) or not all(map(is_mapping, given)):
            raise TermsError("[privacy] links must be a list such as [{ link = 'Clip', norm = 1.0 }].")
        if not given:
            return ()
        from fedfactor.privacy.transform_registry import link_of

        try:
            noisy = [link.noisy for link in map(link_of, given)]
        except (ValueError, TypeError) as error:
            raise TermsError(f"[privacy] links: {error}") from None
        if any(noisy) and self.content["privacy"]["report_error"]:
            raise TermsError("[privacy] report_error would report an exact error beside the noise: set it to false.")
        if any(noisy) and self.preprocess().survey:
            raise TermsError(f"{self.preprocess().survey} would show each party's column sums without noise.")
        return tuple(dict(entry) for entry in given)

    def _check_links(self, agreement: Agreement) -> Agreement:
        """Refuse links that cannot protect this algorithm's uploads."""
        if agreement.links and agreement.asynchronous:
            raise TermsError("links protect uploads that are summed in rounds; this algorithm merges them one by one.")
        try:
            agreement.channel()
        except ValueError as error:
            raise TermsError(f"[privacy] links: {error}") from None
        return agreement

    def _check_secure(self, algorithm: Algorithm, meta: Meta) -> None:
        """Refuse what secure aggregation cannot be made of."""
        rule = Minimums().rows_for(getattr(algorithm, "n_components", 0))
        if not self.noise and self.least_rows < rule and "small-client" not in self.content["privacy"]["allow"]:
            raise TermsError(
                f"[privacy] minimum_rows = {self.least_rows} is below {rule}, the rule for secure aggregation at "
                f"this rank: "
                'sums of few rows say much about each. Raise it, or write allow = ["small-client"].'
            )
        if len(self.names) < LEAST:
            raise TermsError(f"secure aggregation needs {LEAST} parties: of two, each can read the other's part.")
        unsigned = [name for name in self.names if not self.content["parties"][name].get("sign")]
        if unsigned:
            raise TermsError(f"[parties.{unsigned[0]}] has no signing key. Add it again with the whole .pub file.")
        if self.content["run"]["payload"] != "exact":
            raise TermsError("secure aggregation has payloads of its own kind: set [run] payload = 'exact'.")
        if self.preprocess().survey:
            raise TermsError(f"{self.preprocess().survey} would show each party's column sums. {INSTEAD}")
        if getattr(type(algorithm), "asynchronous", False):
            raise TermsError(f"{type(algorithm).__name__} merges single uploads; secure aggregation hides them.")
        uploads(algorithm.messages(meta))

    def _with_noise(self, algorithm: Algorithm, meta: Meta) -> tuple[Algorithm, dict[str, Any]]:
        """Set the algorithm for the agreed noise, and find how much of it there must be; every party does this."""
        if not self.noise:
            return algorithm, {}
        from fedfactor.privacy.agreed_noise import agree_on_noise

        try:
            return agree_on_noise(self.noise, algorithm, meta, self.content["run"]["rounds"])
        except (ValueError, IncompatibleError) as error:
            raise TermsError(f"[privacy] protect = 'dp': {error}") from None

    def agreement(self, name: str = "") -> Agreement:
        """Return the same as parameters of engines, once there are parties and features."""
        if not self.names:
            raise TermsError("[parties] is empty. The coordinator adds each with: fedfactor federation add")
        if not self.features:
            raise TermsError("[features] names is empty. The coordinator fills it with: fedfactor federation agree")
        if name and name not in self.names:
            raise TermsError(f"{name!r} is not one of the parties ({', '.join(self.names)}).")
        self.declared_weights()
        algorithm = self.algorithm()
        if self.by_columns:
            algorithm = for_columns(algorithm)
        meta = self.meta()
        run = self.content["run"]
        check_fit(algorithm, meta)
        refuse_groups(algorithm, meta)
        privacy = self.content["privacy"]
        if self.id and not self.secure and not meta.n_rows and getattr(algorithm, "solver", "") == "counts":
            raise TermsError(
                f"{type(algorithm).__name__} looks at a share of the rows, and without a public number of rows no "
                "party can distinguish a share from a single row. Set [privacy] public_rows, or protect = 'secure-sum'."
            )
        if self.secure:
            self._check_secure(algorithm, meta)
        registry = {n: self.content["parties"][n]["sign"] for n in self.names} if self.secure else {}
        algorithm, noise = self._with_noise(algorithm, meta)
        made = Agreement(
            name=name,
            terms=self.fingerprint,
            algorithm=f"{PUBLIC}:{type(algorithm).__name__}",
            settings=settings_of(algorithm),
            meta=meta,
            seed=run["seed"],
            rounds=run["rounds"],
            payload=run["payload"],
            threads=run["threads"],
            survey=self.preprocess().survey,
            report_score=bool(privacy["report_error"]) and not self.secure,
            protect=privacy["protect"],
            registry=registry,
            least=(privacy["column_rows"], privacy["column_parties"]),
            limits=self.limits,
            links=self.links,
            noise=noise,
            start=self.start,
            federation=self.id or self.content["federation"]["name"],
        )
        return self._check_links(made)

    def differences(self, other: Terms) -> list[str]:
        """List what differs from other terms, entry by entry."""
        mine, theirs = (
            _flat({section: part for section, part in terms.content.items() if section != "parties"})
            for terms in (self, other)
        )
        changed = [
            f"{key}: {_short(theirs.get(key))} became {_short(mine.get(key))}"
            for key in sorted(set(mine) | set(theirs))
            if mine.get(key) != theirs.get(key)
        ]
        return [*changed, *self._changed_parties(other), *self._told_apart(other), *self._less_noise(other)]

    def _changed_parties(self, other: Terms) -> list[str]:
        """List parties that were added or removed, or whose key changed, each key in the words of its keygen."""
        from fedfactor.federation.fingerprint_words import key_words
        from fedfactor.federation.vouching import registry, vouchers

        mine = self.content["parties"]
        theirs = other.content["parties"]
        found: list[str] = []
        for name in sorted(set(mine) | set(theirs)):
            new = mine.get(name)
            old = theirs.get(name)
            if new == old:
                continue
            if new is None:
                found.append(f"parties: {name} was removed")
                continue
            by = vouchers(self, name, registry(other))
            vouched = f"vouched for by {', '.join(by)}" if by else "no party vouches for it"
            words = key_words(name, new)
            if old is None:
                found.append(f'parties: {name} was added, with the key "{words}"; {vouched}')
            elif (before := key_words(name, old)) != words:
                found.append(f'parties: the key of {name} was "{before}" and is now "{words}"; {vouched}')
            else:
                found.append(f"parties: {name} has the same key; {vouched}")
        return found

    @property
    def noise_share(self) -> float:
        """Standard deviation of the noise that each party adds, by the bound on a unit; 0 where none was agreed on."""
        if not (self.noise and self.names and self.features):
            return 0.0
        return self.agreement().noise["noise_multiplier"] / math.sqrt(len(self.names) - self.noise["colluding"])

    def _less_noise(self, other: Terms) -> list[str]:
        """Return how a party's own share of the noise changes with the number of parties."""
        mine = self.noise_share
        theirs = other.noise_share
        if mine == theirs or not theirs:
            return []
        return [
            f"NOISE: each party's share of the noise was {theirs:.4g} and becomes {mine:.4g} times the bound on a "
            f"unit; the rest of what protects your rows is added by the other {len(self.names) - 1} parties"
        ]

    def _told_apart(self, other: Terms) -> list[str]:
        """Return whose uploads two agreements together reveal, where sums without noise are made under both."""
        moved = sorted(set(self.names) ^ set(other.names))
        if not moved or not (self.secure and other.secure) or (self.noise and other.noise):
            return []
        return [
            f"PARTIES: the sums of the old and of the new agreement differ by what {', '.join(moved)} "
            f"{'sends' if len(moved) == 1 else 'send'}, and the party that holds both can read it. Only noise "
            "(protect = 'dp') hides that"
        ]


def has_rank(algorithm: str) -> bool:
    """Return whether an algorithm has a number of components; an unknown one is refused elsewhere.

    Examples
    --------
    >>> has_rank("PooledNMF"), has_rank("PooledEASE")
    (True, False)
    """
    try:
        return "n_components" in {field.name for field in fields(algorithm_class(algorithm))}
    except ValueError:
        return True


def check_party_name(name: str) -> None:
    """Refuse what cannot be a party's name: it becomes a folder at the party, and must not lead anywhere else."""
    if not 1 <= len(name) <= 64 or "/" in name or "\\" in name or name[0] in ".~" or not name.isprintable():
        raise TermsError(f"{name!r} cannot be a party's name: letters, digits and spaces, at most 64.")


def _ascii(host: str) -> str:
    """Return how DNS writes a name with other letters."""
    try:
        return f"Write it as DNS does: {host.encode('idna').decode()}"
    except UnicodeError:
        return "Give the name under which DNS knows the machine, or its address."


def features_hash(names: Any) -> str:
    """Fingerprint of column names in their order.

    Examples
    --------
    >>> features_hash(["a", "b"]) == features_hash(["b", "a"])
    False
    """
    return hashlib.sha256(json.dumps(list(names), ensure_ascii=False).encode()).hexdigest()


def _check_tables(raw: Mapping[str, Any]) -> None:
    """Refuse a single value where a section is expected."""
    parties: Any = raw.get("parties", {})
    inner = {f"parties.{name}": party for name, party in parties.items()} if is_mapping(parties) else {}
    for name, table in {**raw, **inner}.items():
        if not isinstance(table, Mapping):
            raise TermsError(f"{name} = {_short(table)} must be a section, [{name}], with entries of its own.")


def _flat(node: Any, path: str = "") -> dict[str, Any]:
    if is_mapping(node):
        return {key: value for name, part in node.items() for key, value in _flat(part, f"{path}.{name}").items()}
    return {path.lstrip("."): node}


def _short(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
