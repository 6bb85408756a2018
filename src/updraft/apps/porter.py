"""Porter's stemmer (M. F. Porter, "An algorithm for suffix stripping", 1980), word by word in plain Python.

It is what the demo and `bench elastic` spend their time on: a user's own function, some microseconds a word, as the papers'
applications spend theirs on language processing.
"""

from __future__ import annotations

from collections.abc import Sequence

_VOWELS = frozenset("aeiou")
_STEP_2 = (
    *(("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize")),
    *(("abli", "able"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous")),
    *(("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive")),
    *(("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")),
)
_STEP_3 = (
    *(("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic")),
    *(("ful", ""), ("ness", "")),
)
_STEP_4 = (
    *("ement", "ment", "ance", "ence", "able", "ible", "ant", "ent", "ism", "ate", "iti", "ous"),
    *("ive", "ize", "ion", "al", "er", "ic", "ou"),
)


def stem(word: str) -> str:
    """The stem of a lower-case word; words of two letters or less stay as they are."""
    if len(word) <= 2:
        return word
    word = _plural(word)
    word = _past(word)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _STEP_2)
    word = _replaced(word, _STEP_3)
    return _tidy(_without_suffix(word))


def measure(word: str) -> int:
    """How often a vowel is followed by a consonant: Porter's m."""
    return _shape(word).count("vc")


def _shape(word: str) -> str:
    """`c` and `v` for every letter; y is a vowel after a consonant."""
    found = ""
    for letter in word:
        vowel = letter in _VOWELS or (letter == "y" and found[-1:] == "c")
        found += "v" if vowel else "c"
    return found


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        rest = word[: -len(suffix)]
        if word.endswith(suffix) and "v" in _shape(rest):
            return _mended(rest)
    return word


def _mended(word: str) -> str:
    """What is left after -ed or -ing: hop(p)ing, fil(e)ing, conflat(e)ed."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _doubled(word) and word[-1] not in "lsz":
        return word[:-1]
    return word + "e" if measure(word) == 1 and _short(word) else word


def _doubled(word: str) -> bool:
    return word[-1:] == word[-2:-1] and _shape(word)[-1:] == "c"


def _short(word: str) -> bool:
    """Ends consonant, vowel, consonant, the last of them not w, x or y."""
    return _shape(word)[-3:] == "cvc" and word[-1] not in "wxy"


def _replaced(word: str, rules: Sequence[tuple[str, str]]) -> str:
    for suffix, other in rules:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return rest + other if measure(rest) > 0 else word
    return word


def _without_suffix(word: str) -> str:
    for suffix in _STEP_4:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            dropped = measure(rest) > 1 and (suffix != "ion" or rest.endswith(("s", "t")))
            return rest if dropped else word
    return word


def _tidy(word: str) -> str:
    """A last e, and a doubled l."""
    if word.endswith("e"):
        rest = word[:-1]
        times = measure(rest)
        if times > 1 or (times == 1 and not _short(rest)):
            word = rest
    return word[:-1] if word.endswith("ll") and measure(word) > 1 else word
