"""The papers' applications with seeded generators: each is a topology, its input and a plain recomputation."""
