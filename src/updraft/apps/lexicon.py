"""Word lists that come inside PySpark, so that nothing is downloaded and nothing is copied into this project.

Sentiment: AFINN-111 (F. Å. Nielsen, 2,477 English words scored -5 to 5), which PySpark ships as
`pyspark/data/streaming/AFINN-111.txt` for Spark's own streaming examples; its phrases of several words are left
out. Stop words: the English list of Spark ML's StopWordsRemover, a text file inside the spark-mllib jar.
"""

from __future__ import annotations

import os
import zipfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from updraft.errors import UpdraftError

_STOP_WORDS = "org/apache/spark/ml/feature/stopwords/english.txt"


class LexiconMissing(UpdraftError):
    """The installed PySpark does not have a word list that an application needs."""


@lru_cache(maxsize=1)
def scores() -> dict[str, int]:
    """AFINN's score of every single word, sorted by word."""
    path = _pyspark() / "data" / "streaming" / "AFINN-111.txt"
    if not path.is_file():
        raise LexiconMissing("this PySpark has no data/streaming/AFINN-111.txt; install it from PyPI")
    pairs = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return {word: int(score) for word, score in sorted(pairs) if word.isalpha() and word.isascii()}


@lru_cache(maxsize=1)
def stop_words() -> tuple[str, ...]:
    """Spark ML's English stop words, sorted; contractions (`don't`) also as `text` would split them."""
    jars = sorted((_pyspark() / "jars").glob("spark-mllib_*.jar"))
    if not jars:
        raise LexiconMissing("this PySpark has no spark-mllib jar; install it from PyPI")
    with zipfile.ZipFile(jars[0]) as jar:
        words = jar.read(_STOP_WORDS).decode().split()
    return tuple(sorted({part for word in words for part in (word, *word.split("'")) if part}))


def _pyspark() -> Path:
    """Where Spark is installed. A worker imports PySpark from a zip inside of it, the driver from itself."""
    found = find_spec("pyspark")
    places = [Path(os.environ["SPARK_HOME"])] if "SPARK_HOME" in os.environ else []
    if found is not None and found.origin is not None:
        places += Path(found.origin).parents
    for place in places:
        if (place / "jars").is_dir():
            return place
    raise LexiconMissing("no Spark installation with its jars was found; install PySpark from PyPI")
