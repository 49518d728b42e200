"""Timetable of a DAG that is started by hand or by a backfill only."""

from __future__ import annotations

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable


class OnDemand(CronDataIntervalTimetable):
    """The intervals of a cron expression for backfills. A backfill asks with catch-up and gets them; the scheduler
    asks without, for a DAG that does not catch up, and gets none."""

    description = "by hand, or by airflow backfill"

    @property
    def summary(self) -> str:
        """The schedule as Airflow shows it."""
        return "on demand"

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        if not restriction.catchup:
            return None
        return super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )
