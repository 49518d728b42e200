"""A batch on its way into an archive: delivered files, duplicates, slots, buckets, and rows set aside."""
