"""Seeded feeds with the faults of real ones, written as files to ingest.

`quotes.generate_quotes` is the entry point; `feed` computes the rows, `faults` decides what is wrong with them, `files`
writes them. `feeds.physical_feed` says one table of events as several feeds do, for merging. Needs no Spark and no
catalog.
"""
