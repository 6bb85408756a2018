"""Seeded, vectorised generators of the applications' events; row i is a function of (seed, i) and its event time."""
