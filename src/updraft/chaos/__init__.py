"""Breaks a running topology at random, again and again, and compares every result with a recomputation: `updraft chaos`."""

from updraft.chaos.play import Failed, Settings, play
from updraft.chaos.schedule import Event, Kind, draw

__all__ = ["Event", "Failed", "Kind", "Settings", "draw", "play"]
