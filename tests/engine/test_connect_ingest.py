"""Taking in and scanning through Spark Connect: the same as in a session of one's own."""

from __future__ import annotations

import json
from pathlib import Path

from fixtures.connect import RunOnConnect
from fixtures.flows import TOUR, Builder, a_tour

TESTS = Path(__file__).resolve().parent.parent


def test_a_tour_of_the_flows_sees_the_same(run_on_connect: RunOnConnect, a_house: Builder, tmp_path: Path) -> None:
    printed = run_on_connect(
        """
        import json, sys
        from pathlib import Path
        sys.path.insert(0, os.environ["TESTS"])
        from errata.archive.ingest import batch_writer
        from fixtures.flows import TOUR, a_tour, build

        batch_writer.SMALL_BYTES = -1  # else Spark would have little to do
        folder = Path(os.environ["FOLDER"])
        house = build(folder, f"sqlite:///{folder}/errata.db", *TOUR)
        assert house.site.session() is spark
        print(json.dumps(a_tour(house)))
        house.catalog.close()
        """,
        TESTS=str(TESTS),
        FOLDER=str(tmp_path / "connect"),
    )
    assert json.loads(printed) == json.loads(json.dumps(a_tour(a_house(*TOUR))))
