"""The protocol of verified aggregation: test vectors, and what a lying coordinator or party may try."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cryptography")

from fedfactor.privacy.secure_aggregation.field_tags import PRIME, accumulate, coefficients, linear_tag, tag_of_total
from fedfactor.privacy.secure_aggregation.fixed_point import from_wide, join
from fedfactor.privacy.secure_aggregation.primitives import Identity
from fedfactor.privacy.secure_aggregation.verified import (
    Advert,
    Commitment,
    Context,
    Member,
    Tags,
    Total,
    VerificationError,
    carry_dtype,
    label_of,
    seal_of,
)

NAMES = ("north", "south", "west", "zoo")


def secret(*words):
    return hashlib.sha256(repr(words).encode()).digest()


def identities(names=NAMES):
    return {name: Identity(secret("identity", name)) for name in names}


def context(names=NAMES, run="r1", **more):
    registry = {name: identity.public for name, identity in identities(names).items()}
    return Context(**{"federation": "f", "terms": "t" * 64, "run": run, "seed": 7, "registry": registry, **more})


def members(names=NAMES, run="r1", **more):
    where = context(names, run, **more)
    made = {n: Member(where, n, i, secret("fresh", run, n)) for n, i in identities(names).items()}
    adverts = {name: member.advert for name, member in made.items()}
    for member in made.values():
        member.meet(adverts)
    return made


VALUES = {name: np.arange(6, dtype=np.int64) * (place - 1) - 5 for place, name in enumerate(NAMES)}
SIDE = {name: (0.5 * place, -3.0) for place, name in enumerate(NAMES)}
WIDE = 2


def words_of(name):
    return join(VALUES[name], SIDE[name])


class Sum:
    """One honest sum, step by step, whose parts a test may change."""

    def __init__(self, parties=None, question=b"q", index=0, kind="step"):
        self.parties = parties or members()
        self.labels = {
            name: label_of(member.transcript, kind, index, question, b"layout") for name, member in self.parties.items()
        }
        self.masked = {n: m.mask(self.labels[n], words_of(n), WIDE) for n, m in self.parties.items()}

    def total(self):
        size = next(iter(self.masked.values())).size
        words, carries = np.zeros(size, np.uint64), np.zeros(size, carry_dtype(len(self.parties)))
        for masked in self.masked.values():
            accumulate(words, carries, masked)
        commitments = {n: m.commit(self.labels[n], self.masked[n]) for n, m in self.parties.items()}
        return Total(commitments, words, carries)

    def tags(self, total):
        return {n: m.tag(self.labels[n], self.masked[n], total) for n, m in self.parties.items()}

    def check(self, total, tags, who="north"):
        self.parties[who].check(self.labels[who], total, tags)


def test_the_total_is_the_sum_and_every_party_believes_it():
    honest = Sum()
    total = honest.total()
    tags = honest.tags(total)
    for name in NAMES:
        honest.check(total, tags, name)
    found = total.decoded(WIDE)
    np.testing.assert_array_equal(found[: -2 * WIDE].view(np.int64), sum(VALUES.values()))
    assert from_wide(found[-2 * WIDE :]) == [sum(side[0] for side in SIDE.values()), -12.0]


def test_vectors():
    """Bytes of the protocol do not change unnoticed: other versions could not take part in one sum."""
    honest = Sum()
    total = honest.total()
    tags = honest.tags(total)
    told = {
        "transcript": honest.parties["north"].transcript.hex()[:16],
        "label": honest.labels["north"].hex()[:16],
        "masked": hashlib.sha256(honest.masked["north"].tobytes()).hexdigest()[:16],
        "seal": seal_of(honest.labels["north"], total).hex()[:16],
        "tags": tags["west"].values,
    }
    assert told == VECTORS


VECTORS = {
    "transcript": "969caf73a64322f5",
    "label": "1a7f178039421f5b",
    "masked": "4efdd678e620e390",
    "seal": "1412f114efd27817",
    "tags": (227096337879828853, 380998302348533578),
}


@pytest.mark.parametrize("size", [0, 1, 3, 70_000])
def test_tags_are_inner_products_in_the_field(size):
    r = np.random.default_rng(size)
    words = r.integers(0, 2**64, size, np.uint64)
    weights = coefficients(b"k" * 32, size)
    expected = sum(int(a) * int(b) for a, b in zip(weights, words, strict=True)) % PRIME
    assert linear_tag(weights, words) == expected


def test_largest_words_do_not_overflow_a_tag():
    weights = np.full(3 << 19, PRIME - 1, np.uint64)
    words = np.full(3 << 19, 2**64 - 1, np.uint64)
    assert linear_tag(weights, words) == (3 << 19) * (PRIME - 1) * (2**64 - 1) % PRIME


@pytest.mark.parametrize("n", [3, 257, 300])
def test_overflows_of_the_total_are_counted(n):
    words, carries = np.zeros(3, np.uint64), np.zeros(3, carry_dtype(n))
    each = np.array([2**64 - 1, 2**63, 1], np.uint64)
    for _ in range(n):
        accumulate(words, carries, each)
    assert [int(w) + (int(c) << 64) for w, c in zip(words, carries, strict=True)] == [n * int(e) for e in each]
    weights = coefficients(b"k" * 32, 3)
    assert tag_of_total(weights, words, carries) == n * linear_tag(weights, each) % PRIME


def test_masked_words_are_uniform_and_have_nothing_in_common_between_rounds():
    parties = members()
    big = np.zeros(1 << 15, np.uint64)
    first, second = (
        parties["north"].mask(label_of(parties["north"].transcript, "step", i, b"q", b""), big, 0) for i in (0, 1)
    )
    for masked in (first, second, first ^ second):
        counts = np.bincount((masked >> np.uint64(56)).astype(int), minlength=256)
        assert ((counts - 128.0) ** 2 / 128.0).sum() < 400


# -------------------------------------------------------------------------------------------- a coordinator that lies
@pytest.mark.parametrize("place", [0, 5, -1])
@pytest.mark.parametrize("what", ["word", "carry"])
def test_a_false_total_is_refused_whether_it_is_sent_before_or_after_the_tags(place, what):
    honest = Sum()
    total = honest.total()
    words, carries = total.words.copy(), total.carries.copy()
    if what == "word":
        words[place] += np.uint64(1)
    else:
        carries[place] ^= 1
    false = replace(total, words=words, carries=carries)
    with pytest.raises(VerificationError, match="not the sum"):
        honest.check(false, honest.tags(false))
    with pytest.raises(VerificationError, match="not signed"):  # tags of the true total, then another one
        honest.check(false, honest.tags(total))


def test_coefficients_follow_from_the_total_so_that_no_false_total_can_be_solved_for():
    """Were they known before, 2 of the numbers of an error could be chosen so that both inner products vanish."""
    honest = Sum()
    total = honest.total()
    words = total.words.copy()
    words[0] += np.uint64(1)
    assert seal_of(honest.labels["north"], total) != seal_of(honest.labels["north"], replace(total, words=words))


def test_a_total_that_was_solved_for_the_tags_of_another_one_is_refused():
    """What the coordinator would do: an error orthogonal to both coefficient vectors of the true total."""
    honest = Sum()
    total = honest.total()
    tags = honest.tags(total)
    seal = seal_of(honest.labels["north"], total)
    from fedfactor.privacy.secure_aggregation import verified

    one, two = ([int(x) for x in w] for w in verified._weights(seal, total.words.size))
    # Solve one e0 + ... = 0 for three entries modulo the prime.
    cross = [
        one[1] * two[2] - one[2] * two[1], one[2] * two[0] - one[0] * two[2], one[0] * two[1] - one[1] * two[0]
    ]  # fmt: skip
    error = [c % PRIME for c in cross]
    assert sum(a * e for a, e in zip(one, error, strict=False)) % PRIME == 0
    assert sum(a * e for a, e in zip(two, error, strict=False)) % PRIME == 0
    exact = [int(w) + (int(c) << 64) + e for w, c, e in zip(total.words, total.carries, [*error, *[0] * 50])]  # noqa: B905
    false = replace(
        total,
        words=np.array([x % 2**64 for x in exact], np.uint64),
        carries=np.array([x >> 64 for x in exact], np.uint8),
    )
    weights = verified._weights(seal, total.words.size)
    for place in (0, 1):  # with coefficients that do not depend on the total it would pass
        expected = sum(tag.values[place] for tag in tags.values()) % PRIME
        assert tag_of_total(weights[place], false.words, false.carries) == expected
    with pytest.raises(VerificationError):
        honest.check(false, tags)
    with pytest.raises(VerificationError):
        honest.check(false, honest.tags(false))


def test_parties_that_were_asked_different_questions_do_not_cancel():
    parties = members()
    honest = Sum(parties)
    odd = Sum(parties, question=b"another")
    honest.masked["west"], honest.labels["west"] = odd.masked["west"], odd.labels["west"]
    total = honest.total()
    values = total.decoded(WIDE)[: -2 * WIDE].view(np.int64)
    assert (np.abs(values.astype(float)) > 1e9).all()  # nothing but masks
    with pytest.raises(VerificationError, match="not signed"):
        honest.tags(total)


def test_a_split_view_of_the_total_is_refused():
    """Two parties are shown one total, two another: the tags of the one do not fit the other."""
    honest = Sum()
    total = honest.total()
    words = total.words.copy()
    words[2] += np.uint64(9)
    other = replace(total, words=words)
    tags = {n: m.tag(honest.labels[n], honest.masked[n], total if n < "t" else other)
            for n, m in honest.parties.items()}  # fmt: skip
    for view in (total, other):
        with pytest.raises(VerificationError, match="not signed"):
            honest.check(view, tags)


def test_a_party_that_is_missing_or_counted_twice_is_noticed():
    honest = Sum()
    total = honest.total()
    without = {n: c for n, c in total.commitments.items() if n != "zoo"}
    twice = {**without, "zoo": total.commitments["west"]}
    stranger = {**without, "mallory": total.commitments["zoo"]}
    for commitments in (without, stranger, {**total.commitments, "mallory": total.commitments["zoo"]}):
        with pytest.raises(VerificationError, match="missing from the sum"):
            honest.parties["north"].tag(honest.labels["north"], honest.masked["north"],
                                        replace(total, commitments=commitments))  # fmt: skip
    with pytest.raises(VerificationError, match="not signed"):
        honest.parties["north"].tag(honest.labels["north"], honest.masked["north"], replace(total, commitments=twice))
    tags = honest.tags(total)
    with pytest.raises(VerificationError, match="missing"):
        honest.check(total, {n: t for n, t in tags.items() if n != "zoo"})


def test_a_partys_own_hash_cannot_be_replaced():
    honest = Sum()
    total = honest.total()
    mallory = honest.parties["north"].commit(honest.labels["north"], honest.masked["south"])
    with pytest.raises(VerificationError, match="not that of what it sent"):
        honest.parties["north"].tag(honest.labels["north"], honest.masked["north"],
                                    replace(total, commitments={**total.commitments, "north": mallory}))  # fmt: skip


def test_rows_in_another_order_are_refused():
    honest = Sum()
    total = honest.total()
    swapped = {**total.commitments, "south": total.commitments["west"], "west": total.commitments["south"]}
    with pytest.raises(VerificationError, match="not signed"):
        honest.parties["north"].tag(honest.labels["north"], honest.masked["north"], replace(total, commitments=swapped))
    tags = honest.tags(total)
    with pytest.raises(VerificationError, match="not signed"):
        honest.check(total, {**tags, "south": tags["west"], "west": tags["south"]})


@pytest.mark.parametrize(("run", "index"), [("r1", 1), ("r2", 0)])
def test_parts_of_another_round_or_run_are_refused(run, index):
    honest, other = Sum(), Sum(members(run=run), index=index)
    total, later = honest.total(), other.total()
    mixed = replace(later, commitments={**later.commitments, "zoo": total.commitments["zoo"]})
    with pytest.raises(VerificationError, match="not signed"):
        other.parties["north"].tag(other.labels["north"], other.masked["north"], mixed)
    with pytest.raises(VerificationError, match="not signed"):
        other.check(later, {**other.tags(later), "zoo": honest.tags(total)["zoo"]})


def test_tags_cannot_be_forged():
    honest = Sum()
    total = honest.total()
    tags = honest.tags(total)
    moved = replace(tags["zoo"], values=((tags["zoo"].values[0] + 1) % PRIME, tags["zoo"].values[1]))
    with pytest.raises(VerificationError, match="not signed"):
        honest.check(total, {**tags, "zoo": moved})
    seal = seal_of(honest.labels["zoo"], total)
    beyond = (PRIME + 3, 1)
    from fedfactor.privacy.secure_aggregation import verified

    signed = Tags(beyond, identities()["zoo"].sign(verified._tags_text(seal, "zoo", beyond)))
    with pytest.raises(VerificationError, match="not an element"):
        honest.check(total, {**tags, "zoo": signed})


@pytest.mark.parametrize("carry", [4, 255])
def test_a_total_beyond_what_parties_can_make_is_refused(carry):
    honest = Sum()
    total = honest.total()
    carries = total.carries.copy()
    carries[1] = carry
    with pytest.raises(VerificationError, match="larger than so many"):
        honest.parties["north"].tag(honest.labels["north"], honest.masked["north"], replace(total, carries=carries))


def test_totals_of_another_size_are_refused():
    honest = Sum()
    total = honest.total()
    with pytest.raises(VerificationError, match="another size"):
        honest.tags(replace(total, words=total.words[1:], carries=total.carries[1:]))


# -------------------------------------------------------------------------------------------------------------- setup
def adverts_of(run="r1", **more):
    where = context(run=run, **more)
    return {n: Member(where, n, i, secret("fresh", run, n)).advert for n, i in identities().items()}


def test_keys_of_the_coordinator_or_of_another_run_are_refused():
    first = adverts_of()
    member = Member(context(), "north", identities()["north"], secret("fresh", "r1", "north"))
    mallory = Identity(secret("mallory"))
    false = {
        "key": {**first, "zoo": Advert(mallory.public, first["zoo"].signature)},
        "signed by another": {**first, "zoo": Advert(mallory.public, mallory.sign(b"advert"))},
        "another run": {**first, "zoo": adverts_of(run="r0")["zoo"]},
        "other terms": {**first, "zoo": adverts_of(terms="u" * 64)["zoo"]},
        "another federation": {**first, "zoo": adverts_of(federation="g")["zoo"]},
        "another party": {**first, "zoo": first["west"]},
    }
    for name, keys in false.items():
        with pytest.raises(VerificationError, match="not signed by 'zoo'"):
            member.meet(keys)
        assert member.transcript == b"", name
    with pytest.raises(VerificationError, match="own key was replaced"):
        member.meet({**first, "north": adverts_of(run="r0")["north"]})
    for keys in ({n: k for n, k in first.items() if n != "zoo"}, {**first, "mallory": first["zoo"]}):
        with pytest.raises(VerificationError, match="missing, or there are keys of others"):
            member.meet(keys)
    with pytest.raises(VerificationError, match="before the keys"):
        member.mask(b"label", words_of("north"), WIDE)


def test_two_parties_with_one_key_are_refused():
    where = context()
    made = {n: Member(where, n, i, secret("the same")) for n, i in identities().items()}
    with pytest.raises(VerificationError, match="same key"):
        made["north"].meet({n: m.advert for n, m in made.items()})


def test_fewer_than_three_and_strangers_are_refused():
    with pytest.raises(VerificationError, match="needs 3"):
        Member(context(NAMES[:2]), "north", identities()["north"], secret("x"))
    with pytest.raises(VerificationError, match="not registered"):
        Member(context(), "mallory", Identity(secret("m")), secret("x"))
    with pytest.raises(VerificationError, match="not registered"):
        Member(context(), "north", Identity(secret("m")), secret("x"))


def test_a_restarted_party_makes_the_same_bytes():
    """Recomputing with anything else under one label would use a mask twice; with the same it changes nothing."""
    first, again = Sum(), Sum()
    for name in NAMES:
        np.testing.assert_array_equal(first.masked[name], again.masked[name])
    assert first.tags(first.total()) == again.tags(again.total())


def test_with_a_colluding_party_the_coordinator_can_set_any_total():
    """The limit of the protocol, as documented: the tag of the party that colludes is not checked by anybody."""
    honest = Sum()
    total = honest.total()
    words = total.words.copy()
    words[0] += np.uint64(1000)
    false = replace(total, words=words)
    tags = honest.tags(false)
    seal = seal_of(honest.labels["zoo"], false)
    from fedfactor.privacy.secure_aggregation import verified

    weights = verified._weights(seal, words.size)
    missing = tuple(
        (tag_of_total(w, false.words, false.carries) - sum(tags[n].values[i] for n in NAMES if n != "zoo")) % PRIME
        for i, w in enumerate(weights)
    )
    signed = Tags(missing, identities()["zoo"].sign(verified._tags_text(seal, "zoo", missing)))
    honest.check(false, {**tags, "zoo": signed})


def test_a_commitment_is_bound_to_its_label():
    honest = Sum()
    total = honest.total()
    other = label_of(honest.parties["zoo"].transcript, "step", 0, b"q", b"another layout")
    swapped = {**total.commitments, "zoo": honest.parties["zoo"].commit(other, honest.masked["zoo"])}
    assert isinstance(swapped["zoo"], Commitment)
    with pytest.raises(VerificationError, match="not signed"):
        honest.tags(replace(total, commitments=swapped))
