"""Seeded feeds with the faults of real ones, as files to take in.

`quotes.generate_quotes` is the door; `feed` has the rows, `faults` what is wrong with them. Needs no Spark, no catalog.
"""
