"""HTTP requests of a campus network, and a table that says whose an address is (paper 2 §V-D).

The paper replays 33 hours of a border router's traffic; neither that nor an address registry can be had offline.
The table here divides all /16 prefixes into `ranges` ranges, each with a country and a provider, all drawn from the
seed; names are invented (`ISP-017`), countries are ISO codes without further meaning. Popular prefixes are
Zipf-distributed. Every `trouble_s` seconds of event time, for one fifth of that time, one provider's popular prefix gets a
surge of requests and another's gets none: what the alarm is there to see.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from updraft.apps.generators.draws import TIME, Draws, Ints, times
from updraft.apps.text import zipf_thresholds

COUNTRIES = (
    *("AT", "AU", "BE", "BR", "CA", "CH", "CN", "CZ", "DE", "DK", "EG", "ES", "FI", "FR", "GB"),
    *("GR", "IE", "IN", "IT", "JP", "KR", "MX", "NL", "NO", "PL", "PT", "SE", "SG", "US", "ZA"),
)
PREFIXES = 1 << 16
_TROUBLED = 20  # trouble comes to one of the most popular prefixes: elsewhere nobody would notice


@dataclass(frozen=True, slots=True, eq=False)
class AddressTable:
    """Ranges of /16 prefixes, ascending: range r begins at `starts[r]`."""

    starts: Ints
    country: Ints
    isp: Ints
    isps: int

    def ranges_of(self, prefix: Ints) -> Ints:
        found: Ints = np.searchsorted(self.starts, prefix, side="right") - 1
        return found


@lru_cache(maxsize=4)
def address_table(seed: int = 7, ranges: int = 600, isps: int = 80) -> AddressTable:
    """The synthetic registry of a seed."""
    random = np.random.default_rng((seed, 1))
    inner = np.sort(random.choice(np.arange(1, PREFIXES), ranges - 1, replace=False))
    starts = np.concatenate(([0], inner)).astype(np.int64)
    # A provider works in one country; large countries have more of them.
    home = random.integers(0, len(COUNTRIES), isps)
    isp = random.integers(0, isps, ranges)
    return AddressTable(starts, home[isp], isp, isps)


def isp_names(isps: int) -> pa.Array:
    return pa.array([f"ISP-{number:03d}" for number in range(isps)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Rows (ts, client, method, destination, bytes); `destination` is a dotted IPv4 address."""

    seed: int = 7
    sites: int = 2_000
    zipf: float = 1.0
    clients: int = 20_000
    trouble_s: int = 100
    surge_share: float = 0.3

    schema: ClassVar[pa.Schema] = pa.schema(
        [
            ("ts", TIME),
            ("client", pa.int64()),
            ("method", pa.string()),
            ("destination", pa.string()),
            ("bytes", pa.int64()),
        ]
    )

    def rows(self, first: int, at_us: Ints) -> pa.Table:
        draws = Draws(self.seed)
        row = first + np.arange(len(at_us), dtype=np.int64)
        site = draws.ranked("site", row, zipf_thresholds(self.sites, self.zipf))
        prefix = self._prefix_of(draws, site)

        period = at_us // (self.trouble_s * 1_000_000)
        is_trouble = at_us % (self.trouble_s * 1_000_000) >= self.trouble_s * 800_000
        surging = self._prefix_of(draws, draws.integers("surge", period, 0, _TROUBLED))
        silent = self._prefix_of(draws, draws.integers("silence", period, 0, _TROUBLED))
        prefix = np.where(
            is_trouble & (prefix == silent), self._prefix_of(draws, site * 0 + self.sites), prefix
        )
        is_surge = is_trouble & (draws.uniform("is_surge", row) < self.surge_share)
        prefix = np.where(is_surge, surging, prefix)

        host = draws.integers("host", row, 0, 1 << 16)
        parts = [prefix >> 8, prefix & 255, host >> 8, host & 255]
        dotted = pc.binary_join_element_wise(*(pa.array(part).cast(pa.string()) for part in parts), ".")
        method = pa.array(["GET", "GET", "GET", "POST"]).take(pa.array(draws.integers("method", row, 0, 4)))
        client = draws.integers("client", row, 0, self.clients)
        size = 200 + (draws.uniform("bytes", row) ** 4 * 100_000).astype(np.int64)
        return pa.table([times(at_us), client, method, dotted, size], schema=self.schema)

    def _prefix_of(self, draws: Draws, site: Ints) -> Ints:
        return draws.integers("prefix", site, 0, PREFIXES)
