"""Benchmarks that ship with the platform: `aisle bench NAME`. Each starts servers of its own and measures them."""
