"""The words of Errata: instants, columns, streams, intervals, buckets, revisions, commits.

Values only, made of the standard library; every other room may import them, and they import nothing but errors.
"""
