"""One replica in several processes: a supervisor, and the processes that do the work.

The supervisor holds the ports, the signals and the configuration, and touches no broker; each
process has its own event loop and its part of the workers, and does everything else as a single one
would. They talk over a pair of sockets (`line`), which also tells each that the other is gone.
"""
