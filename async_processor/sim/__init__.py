"""A simulated vLLM pool, with interactive traffic on it: for tests, benchmarks and the demo."""
