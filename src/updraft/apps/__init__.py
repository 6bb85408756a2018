"""The papers' applications with seeded generators: a topology, its input, a plain recomputation."""
