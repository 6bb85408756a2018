"""Side-by-side benchmarks against the honest alternative, outputs verified."""
