"""Benchmarks that compare this project with its peers and with the floors."""
