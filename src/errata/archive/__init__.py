"""Archives of streams and of query results: rows in buckets, corrected by overlays and masks that never rewrite them.

The modules here write, read and scan buckets. `ingest` takes batches in and `revisions` applies corrections; both may
use `upkeep`, which ages out, compacts, vacuums and checks archives and knows neither of them."""
