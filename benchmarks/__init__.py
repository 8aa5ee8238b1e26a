"""Benchmarks: ours beside its peers and beside the floors, in one run."""
