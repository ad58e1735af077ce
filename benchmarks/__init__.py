"""How fast it is, how soon, in how much memory: `python -m benchmarks --help`."""
