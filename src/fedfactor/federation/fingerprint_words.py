"""Fingerprints that people can read to each other: a few words instead of sixty letters and digits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

__all__ = ["WORDS", "key_words", "same_words", "spoken", "terms_words"]

WORDS: tuple[str, ...] = tuple(
    """
    acorn actor album alpine amber anchor apple arrow atlas attic autumn avenue bacon badge bamboo banjo barley basket
    beacon beetle bell berry bicycle bishop blanket bottle bridge broom bubble bucket butter cabin cactus camel candle
    canyon carpet carrot castle cedar cellar chapel cherry chimney circus clover coffee comet copper coral cotton cradle
    cricket crystal curtain daisy dancer denim desert diamond dinner doctor dolphin donkey dragon drummer eagle earth
    easel echo elbow elephant ember engine envelope evening fabric falcon farmer feather fiddle finger flame flower
    forest fossil fountain frozen galaxy garden garlic ginger glacier goblet golden gravel guitar gypsum hammer harbor
    harvest hazel helmet hermit hollow honey horizon hunter icicle iguana infant ink island ivory jacket jaguar jelly
    jewel jigsaw jungle juniper kayak kettle kitchen kitten knight ladder lagoon lantern laurel lemon letter lilac
    lizard lobster lumber magnet mango maple marble meadow melon mirror monkey morning mountain muffin museum mustard
    napkin needle nephew nickel noodle novel nutmeg oak oasis ocean olive onion orange orbit orchard otter oven oyster
    paddle palace panda paper parrot pebble pencil pepper piano pigeon pillow pirate planet pocket polar potato pumpkin
    puzzle quartz quilt quiver rabbit raccoon radish raven ribbon river robin rocket rooster rubber saddle saffron
    sailor salmon sandal satchel saturn scarf school shadow shelter silver sister spider spoon squirrel stable summer
    sunset swallow table tailor teapot temple thimble thunder tiger timber tomato tractor tulip tunnel turtle umbrella
    unicorn uncle urchin valley vanilla velvet village violin volcano waffle walnut whistle window winter wizard wombat
    woolen yarn yellow yogurt zebra zenith zigzag zipper
""".split()
)
"""One word for each byte. No two begin with the same four letters, so a misheard word is noticed."""

OF_TERMS = 12
OF_KEY = 6
"""Words of an agreement and of one key. The party that writes the file could look for two agreements with the same
words,
which takes the square root of all tries: hence twice as many for it, and a slow digest."""


@lru_cache(maxsize=256)
def spoken(data: bytes, count: int = OF_TERMS) -> str:
    """Turn bytes into words, by a digest that takes a tenth of a second and 32 MB for each try.

    Examples
    --------
    >>> len(spoken(b"abc").split())
    12
    >>> spoken(b"abc") == spoken(b"abd")
    False
    """
    digest = hashlib.scrypt(data, salt=b"fedfactor words", n=1 << 15, r=8, p=1, maxmem=1 << 26, dklen=count)
    return " ".join(WORDS[byte] for byte in digest)


def terms_words(fingerprint: str) -> str:
    """Return the fingerprint of an agreement (all names, keys and terms) in words."""
    return spoken(b"terms " + bytes.fromhex(fingerprint), OF_TERMS)


def key_words(name: str, party: Mapping[str, Any]) -> str:
    """Return a party's name and keys in words."""
    return spoken(b"key " + key_bytes(name, party), OF_KEY)


def key_bytes(name: str, party: Mapping[str, Any]) -> bytes:
    """Write a party's name and keys in the one way that is signed and spoken."""
    return json.dumps([name, party["key"], party.get("sign", "")], ensure_ascii=False).encode()


def same_words(given: str | Sequence[str], right: str) -> bool:
    """Compare typed words: capitals, commas and line breaks do not matter.

    Examples
    --------
    >>> same_words("Acorn,  actor", "acorn actor"), same_words("acorn", "acorn actor")
    (True, False)
    """
    text = given if isinstance(given, str) else " ".join(given)
    return "".join(c if c.isalpha() else " " for c in text.lower()).split() == right.split()
