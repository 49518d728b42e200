"""Keeping queries answered: how the next instants of an answer are worked out from what has changed, and what of the
published answer that changes. Strategies choose how; they know no catalog and no files."""
