"""`python -m async_processor` is the same as `async-processor`."""

from async_processor.cli.main import main

main()
