"""Plain recomputation of the Nexmark queries over all events at once; shares no code with the queries it judges."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from updraft.apps.generators.nexmark import AUCTION, BID, PERSON

Row = dict[str, Any]
EURO = 0.908


def expected(events: pa.Table, query: str) -> list[Row]:
    """The rows a query ends with; times are whole seconds since 1970 where they are windows."""
    rows = events.to_pylist()
    persons = [row for row in rows if row["kind"] == PERSON]
    auctions = [row for row in rows if row["kind"] == AUCTION]
    bids = [
        {"ts": row["ts"], "auction": row["auction"], "bidder": row["person"], "price": row["price"]}
        for row in rows
        if row["kind"] == BID
    ]
    match query:
        case "q0":
            return bids
        case "q1":
            return [{**bid, "price": bid["price"] * EURO} for bid in bids]
        case "q2":
            return [bid for bid in bids if bid["auction"] % 123 == 0]
        case "q3":
            return _local_sellers(persons, auctions)
        case "q4":
            return _mean_prices(_winners(auctions, bids))
        case "q5":
            return _hottest(bids)
        case "q6":
            return _last_sales(
                _winners(auctions, bids), int(max(row["ts"] for row in rows).timestamp() * 1_000)
            )
        case "q7":
            return _highest(bids)
        case "q8":
            return _new_sellers(persons, auctions)
        case "q9":
            return [
                {name: row[name] for name in ("auction", "category", "price", "bidder")}
                for row in _winners(auctions, bids)
            ]
        case _:
            raise ValueError(query)


def _second(row: Row) -> int:
    return int(row["ts"].timestamp())


def _local_sellers(persons: list[Row], auctions: list[Row]) -> list[Row]:
    return [
        {**{name: person[name] for name in ("name", "city", "state")}, "auction": lot["id"]}
        for person in persons
        for lot in auctions
        if person["state"] in ("OR", "ID", "CA")
        and lot["category"] == 10
        and lot["person"] == person["id"]
        and abs((lot["ts"] - person["ts"]).total_seconds()) <= 60
    ]


def _winners(auctions: list[Row], bids: list[Row]) -> list[Row]:
    offers: dict[int, list[Row]] = {}
    for bid in bids:
        offers.setdefault(bid["auction"], []).append(bid)
    found = []
    for lot in auctions:
        valid = [bid for bid in offers.get(lot["id"], []) if lot["ts"] <= bid["ts"] <= lot["expires"]]
        if valid:
            best = min(valid, key=lambda bid: (-bid["price"], bid["ts"]))
            found.append(
                {**best, "category": lot["category"], "seller": lot["person"], "expires": lot["expires"]}
            )
    return found


def _last_sales(winners: list[Row], until_ms: int) -> list[Row]:
    """Of auctions that ended before the time."""
    sellers: dict[int, list[int]] = {}
    for row in sorted(winners, key=lambda row: (row["expires"], row["auction"])):
        if row["expires"].timestamp() * 1_000 < until_ms:
            sellers.setdefault(row["seller"], []).append(row["price"])
    return [
        {"seller": seller, "sales": len(prices[-10:]), "mean_price": sum(prices[-10:]) / len(prices[-10:])}
        for seller, prices in sellers.items()
    ]


def _mean_prices(winners: list[Row]) -> list[Row]:
    prices: dict[int, list[int]] = {}
    for row in winners:
        prices.setdefault(row["category"], []).append(row["price"])
    return [{"category": name, "mean_price": sum(each) / len(each)} for name, each in prices.items()]


def _hottest(bids: list[Row]) -> list[Row]:
    counts: dict[int, Counter[int]] = {}
    for bid in bids:
        newest = _second(bid) // 2 * 2
        for start in range(newest, newest - 10, -2):
            counts.setdefault(start, Counter())[bid["auction"]] += 1
    best = {start: min(each.items(), key=lambda item: (-item[1], item[0])) for start, each in counts.items()}
    return [
        {"window_start": start, "auction": auction, "bids": count} for start, (auction, count) in best.items()
    ]


def _highest(bids: list[Row]) -> list[Row]:
    windows: dict[int, list[Row]] = {}
    for bid in bids:
        windows.setdefault(_second(bid) // 10 * 10, []).append(bid)
    return [
        {"window_start": start, "price": max(bid["price"] for bid in each)} for start, each in windows.items()
    ]


def _new_sellers(persons: list[Row], auctions: list[Row]) -> list[Row]:
    opened = Counter((_second(lot) // 10 * 10, lot["person"]) for lot in auctions)
    joined = {(_second(person) // 10 * 10, person["id"]): person["name"] for person in persons}
    return [
        {"window_start": window, "person": person, "name": name, "auctions": opened[window, person]}
        for (window, person), name in joined.items()
        if opened[window, person]
    ]
