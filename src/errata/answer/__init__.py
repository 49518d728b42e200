"""Propagating a change: which results an arrival, an expiration or a correction touches, what makes those results,
how they are computed again, and what is published. May import every room up to archive."""
