"""A stream archived, a query kept answered, and its answer corrected: in Python, without Spark and without Java.

Run it in this folder, or paste it into a notebook piece by piece.
"""

from pathlib import Path

import errata

HERE = Path(__file__).parent

with errata.open(HERE) as project:
    project.apply()  # makes the catalog agree with errata.yaml

    project.ingest("quotes", HERE / "quotes.csv")
    project.run()
    before = project.results("mean", at="2026-11-18T00:02:00")
    print(before.to_pylist())

    # The exchange was wrong about one price. The answer of a minute that is long over follows.
    project.ingest("quotes", HERE / "corrections.csv")
    project.run()
    print(project.results("mean", at="2026-11-18T00:02:00").to_pylist())

    changed = project.changes("mean").to_pylist()[-1]
    print(changed["op"], changed["key"], changed["old"], "->", changed["new"])

    story = project.why("mean", {"symbol": "IBM", "window_start": "2026-11-18T00:01:00"})
    print(len(story["values"]), "values so far")
    for version in project.history("quotes", {"symbol": "IBM", "time": "2026-11-18T00:01:20"}).versions:
        print(version.origin, version.values["price"])

    # Of anything that the archive holds, once; as known now, or at any commit.
    dearest = "SELECT symbol, max(price) AS high FROM quotes GROUP BY symbol"
    print(project.ask(dearest).to_pylist(), project.ask(dearest, as_of=2).to_pylist())
    print(project.scan("quotes", start="2026-11-18T00:03:00", groups=[{"symbol": "IBM"}]).num_rows, "rows")
