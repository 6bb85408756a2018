"""Ad events of the Yahoo streaming benchmark: 100 campaigns of 10 ads, uniform, three kinds of event.

Follows the benchmark's data (user, page, ad, kind of ad, kind of event, time, address); identifiers are 16 hex
digits drawn from the seed instead of UUIDs, and the campaigns' table is given to the topology instead of Redis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from updraft.apps.generators.draws import TIME, Draws, Ints, picked, times

_AD_TYPES = pa.array(["banner", "modal", "sponsored-search", "mail", "mobile"])
_EVENT_TYPES = pa.array(["view", "click", "purchase"])
_USERS, _PAGES = 100, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Ads:
    """Rows (ts, user_id, page_id, ad_id, ad_type, event_type, ip_address)."""

    seed: int = 7
    campaigns: int = 100
    ads_per_campaign: int = 10

    schema: ClassVar[pa.Schema] = pa.schema(
        [
            ("ts", TIME),
            ("user_id", pa.string()),
            ("page_id", pa.string()),
            ("ad_id", pa.string()),
            ("ad_type", pa.string()),
            ("event_type", pa.string()),
            ("ip_address", pa.string()),
        ]
    )

    def rows(self, first: int, at_us: Ints) -> pa.Table:
        draws = Draws(self.seed)
        row = first + np.arange(len(at_us), dtype=np.int64)
        ads = self.campaigns * self.ads_per_campaign
        columns = [
            times(at_us),
            picked(self._names("user", _USERS), draws.integers("user", row, 0, _USERS)),
            picked(self._names("page", _PAGES), draws.integers("page", row, 0, _PAGES)),
            picked(self._names("ad", ads), draws.integers("ad", row, 0, ads)),
            picked(_AD_TYPES, draws.integers("ad_type", row, 0, len(_AD_TYPES))),
            picked(_EVENT_TYPES, draws.integers("event_type", row, 0, len(_EVENT_TYPES))),
            picked(pa.array(["1.2.3.4"]), np.zeros(len(row), np.int64)),
        ]
        return pa.table(columns, schema=self.schema)

    def campaign_table(self) -> pa.Table:
        """Which campaign each ad belongs to."""
        ads = self._names("ad", self.campaigns * self.ads_per_campaign)
        of = np.repeat(np.arange(self.campaigns), self.ads_per_campaign)
        return pa.table({"ad_id": ads, "campaign_id": picked(self._names("campaign", self.campaigns), of)})

    def _names(self, kind: str, count: int) -> pa.Array:
        drawn = Draws(self.seed).bits(f"names of {kind}", np.arange(count, dtype=np.int64))
        return pa.array([f"{value:016x}" for value in drawn.tolist()])
