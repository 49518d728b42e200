"""Archives kept fit: ageing, compaction, vacuum, and checks of every bucket."""
