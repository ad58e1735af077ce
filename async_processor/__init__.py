"""Background LLM inference on GPU pools that already serve live traffic."""

__version__ = "0.1.0"
