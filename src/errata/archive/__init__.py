"""Buckets of streams and results: write, scan, overlay, age out, compact, check.

`ingest` takes batches in, `revisions` applies corrections, `upkeep` keeps archives small and whole.
"""
