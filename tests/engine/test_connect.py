"""What the archive is built on works the same through Spark Connect."""

from __future__ import annotations

from pathlib import Path

from fixtures.connect import RunOnConnect


def test_the_operations_that_the_archive_uses(run_on_connect: RunOnConnect, tmp_path: Path) -> None:
    printed = run_on_connect(
        """
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyspark.sql import functions as F

        folder = os.environ["FOLDER"]
        paths = []
        for part in range(3):
            paths.append(f"{folder}/{part}.parquet")
            pq.write_table(pa.table({"n": list(range(part * 10, part * 10 + 10))}), paths[-1])
        numbers = spark.read.schema("n BIGINT").parquet(*paths[:2])
        print("read", numbers.count())

        def doubled(batches):
            for batch in batches:
                yield pa.record_batch({"n": pa.array([2 * n for n in batch.column("n").to_pylist()], pa.int64())})

        print("mapInArrow", numbers.mapInArrow(doubled, "n BIGINT").agg(F.sum("n")).first()[0])
        cut = numbers.repartitionById(4, (F.col("n") % 4).cast("int"))
        held = cut.groupBy(F.spark_partition_id().alias("part"), (F.col("n") % 4).alias("want")).count()
        print("repartitionById", sorted((row.part, row.want) for row in held.collect()))
        table = pa.table({"at": pa.array([7], pa.timestamp("us", tz="UTC")), "symbol": ["IBM"]})
        back = spark.createDataFrame(table).toArrow()
        print("Arrow", back.column("at").cast(pa.int64()).to_pylist(), back.column("symbol").to_pylist())
        print("zone", spark.conf.get("spark.sql.session.timeZone"))
        """,
        FOLDER=str(tmp_path),
    )
    assert printed.splitlines() == [
        "read 20",
        "mapInArrow 380",
        "repartitionById [(0, 0), (1, 1), (2, 2), (3, 3)]",
        "Arrow [7] ['IBM']",
        "zone UTC",
    ]
