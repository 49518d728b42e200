"""The predicate index (PSoup, section 4.2): which rows of a batch satisfy which of thousands of conditions.

The constants of all conditions cut the values of each attribute into segments, within which no condition tells two
values apart. A row is looked up once for each attribute, whatever the number of queries, and a condition is a run of
segments. `predicate_index.PredicateIndex` is the one way in: made of conjunctions, it turns a table into `Matches`.

    keys               values as 64-bit integers in their order      ─┐
    requirements       conditions as ranges of keys                   ├─ made once
    value_segments     the segments of one attribute                  │
    conjunction_table  conjunctions as boundaries of segments         │
    indexing           those and the entrances, made of requirements ─┘
    bit_matching       conjunctions of many rows                     ─┐
    row_matching       conjunctions of few rows                       ├─ for each batch
    matches            the rows of each, as sets, counts and bytes   ─┘

All are numpy over values: no file, no catalog. May import `model`, and of `psoup` what holds values and sets of rows.
"""
