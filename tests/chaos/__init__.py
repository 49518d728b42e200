"""Chaos: a project that several processes work on while they are killed, and the oracle at every quiet point.

    sources ──deliveries──► 4 workers ──commands──► project ◄── kill -9 of a worker or of its JVM, at random
       │                                               │
       └── what the streams hold now ──► DuckDB ══ compared ══ published results, changes, streams, doctor, leases

A source owns the keys that it speaks of and delivers a batch until it is taken, as a landing place or a retrying task
does. So whatever is killed, what the streams have to hold is known. `make chaos` runs it for ten minutes.
"""
