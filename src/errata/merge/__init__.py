"""Several feeds to one stream: elements, algorithms, policies. Pure: Arrow tables in, Arrow tables out.

The room knows neither the catalog nor an engine: the ingest of a batch calls it in this process, or in Spark's tasks
for one part of the keys each. What is remembered between batches is a table (`state.MergeState`), which commits with
the batch. What has been decided once for all keys is in `progress.MergeProgress`.
"""
