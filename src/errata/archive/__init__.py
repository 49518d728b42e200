"""Append, scan and age out: rows into buckets and back. Takes a session and a catalog; may import every room below."""
