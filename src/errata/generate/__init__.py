"""Seeded feeds with the faults of real ones, written as files to ingest.

`quotes.generate_quotes` is the entry point; `feed` computes the rows, `faults` decides what is wrong with them, `files`
writes them. Needs no Spark and no catalog.
"""
