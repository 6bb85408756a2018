"""Nexmark's auction site: persons, auctions and bids as 1 : 3 : 46, in one stream of events.

Follows the public specification and its reference generator: of 50 events the first is a person, three are auctions, 46
are bids; ids begin at 1,000; 3 of 4 auctions belong to a hot seller and 3 of 4 bids come from a hot bidder, one
of every 100 persons; half of the bids go to a hot auction, one of every 100; the others to one of the last 1,000 persons or 100
auctions, or to one of the next 10, which does not exist yet; prices are 10^u cents with u uniform in [2, 8).
Deviations: the length of an auction is uniform up to twice `auction_s` rather than derived from the rate, which a row
does not know here; names are shorter; there is no filler text (`extra`), credit card or e-mail column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from updraft.apps.generators.draws import TIME, Draws, Ints, Mask, times

PERSON, AUCTION, BID = 0, 1, 2
_CYCLE, _AUCTIONS = 50, 3
_FIRST_ID, _FIRST_CATEGORY, _CATEGORIES = 1_000, 10, 5
_ACTIVE_PEOPLE, _IN_FLIGHT, _LEAD, _HOT = 1_000, 100, 10, 100
_STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_CITIES = pa.array(
    [
        "Phoenix",
        "Los Angeles",
        "San Francisco",
        "Boise",
        "Portland",
        "Bend",
        "Redmond",
        "Seattle",
        "Kent",
        "Cheyenne",
    ]
)
_FIRST = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_NAMES = pa.array([f"{first} {last}" for first in _FIRST for last in _LAST])


@dataclass(frozen=True, slots=True, kw_only=True)
class Nexmark:
    """Rows of all three kinds; the columns of the other kinds are null.

    `id` is the person's or auction's own id, `auction` what a bid is for, `person` the seller or bidder.
    """

    seed: int = 7
    auction_s: float = 10.0

    schema: ClassVar[pa.Schema] = pa.schema(
        [
            ("ts", TIME),
            ("kind", pa.int8()),
            ("id", pa.int64()),
            ("name", pa.string()),
            ("city", pa.string()),
            ("state", pa.string()),
            ("person", pa.int64()),
            ("category", pa.int64()),
            ("initial_bid", pa.int64()),
            ("reserve", pa.int64()),
            ("expires", TIME),
            ("auction", pa.int64()),
            ("price", pa.int64()),
        ]
    )

    def rows(self, first: int, at_us: Ints) -> pa.Table:
        draws = Draws(self.seed)
        event = first + np.arange(len(at_us), dtype=np.int64)
        place = event % _CYCLE
        kind = np.where(place == 0, PERSON, np.where(place <= _AUCTIONS, AUCTION, BID))
        is_person, is_auction, is_bid = kind == PERSON, kind == AUCTION, kind == BID
        person, auction = last_person(event), last_auction(event)
        price = _prices(draws, "price", event)
        length_us = 1_000 + (draws.uniform("length", event) * self.auction_s * 2e6).astype(np.int64)
        columns = [
            times(at_us),
            pa.array(kind, pa.int8()),
            _only(np.where(is_person, person, auction) + _FIRST_ID, ~is_bid),
            _named(_NAMES, draws.integers("name", event, 0, len(_NAMES)), is_person),
            _named(_CITIES, draws.integers("city", event, 0, len(_CITIES)), is_person),
            _named(_STATES, draws.integers("state", event, 0, len(_STATES)), is_person),
            _only(self._people(draws, event, person, is_bid) + _FIRST_ID, ~is_person),
            _only(draws.integers("category", event, 0, _CATEGORIES) + _FIRST_CATEGORY, is_auction),
            _only(price, is_auction),
            _only(price + _prices(draws, "reserve", event), is_auction),
            _only(at_us + length_us, is_auction).cast(TIME),
            _only(self._auctions(draws, event, auction) + _FIRST_ID, is_bid),
            _only(price, is_bid),
        ]
        return pa.table(columns, schema=self.schema)

    def _people(self, draws: Draws, event: Ints, last: Ints, is_bid: Mask) -> Ints:
        """Sellers and bidders: mostly a hot one (bidders' hot ones are next to the sellers'), else an active one."""
        active = np.minimum(last + 1, _ACTIVE_PEOPLE)
        any_one = last + 1 - active + draws.integers("person", event, 0, active + _LEAD)
        hot = last // _HOT * _HOT + is_bid
        return np.where(draws.integers("hot person", event, 0, 4) > 0, hot, any_one)

    def _auctions(self, draws: Draws, event: Ints, last: Ints) -> Ints:
        least = np.maximum(last - _IN_FLIGHT, 0)
        any_one = least + draws.integers("auction", event, 0, last - least + 1 + _LEAD)
        return np.where(draws.integers("hot auction", event, 0, 2) > 0, last // _HOT * _HOT, any_one)


def last_person(event: Ints) -> Ints:
    """Number (from 0) of the newest person at an event: one in every 50."""
    return event // _CYCLE


def last_auction(event: Ints) -> Ints:
    """Number (from 0) of the newest auction at an event; before the first one it is 0 all the same."""
    place = event % _CYCLE
    newest = event // _CYCLE * _AUCTIONS + np.minimum(place, _AUCTIONS) - 1
    return np.maximum(newest, 0)


def _prices(draws: Draws, lane: str, event: Ints) -> Ints:
    found: Ints = np.round(10.0 ** (draws.uniform(lane, event) * 6) * 100).astype(np.int64)
    return found


def _only(values: Ints, where: Mask) -> pa.Array:
    return pa.array(values, pa.int64(), mask=~where)


def _named(values: pa.Array, at: Ints, where: Mask) -> pa.Array:
    return values.take(_only(at, where))
