"""When a DAG runs that is started by hand or by a backfill, and never by itself."""

from __future__ import annotations

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable


class OnDemand(CronDataIntervalTimetable):
    """The intervals of a cron expression for those who ask for them: a backfill asks with catching up, the scheduler,
    for a DAG that does not catch up, without."""

    description = "by hand, or by airflow backfill"

    @property
    def summary(self) -> str:
        """What Airflow shows as the schedule."""
        return "on demand"

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        if not restriction.catchup:
            return None
        return super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )
