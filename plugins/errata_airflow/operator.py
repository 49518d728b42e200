"""The operator of the DAGs: runs one of Errata's jobs, submitted to Spark or against a Connect server.

Nothing of a try outlives it: a job that is killed ends its Spark work and releases its leases. What it committed stays.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowRuntimeError, AirflowSkipException

from errata_airflow import beside, settings
from errata_airflow.events import MOVED, emit_asset_events
from errata_airflow.links import ReportLink
from errata_airflow.reason import TAIL, airflow_errors, log_reason, reason_of

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context
    from airflow.sdk.definitions.mappedoperator import OperatorPartial

    from errata.read.corrections import AssetChange

FINAL = (2, 4)
"""Exit codes that a retry cannot change: a usage error, or work that waits for a person."""

LIVE = frozenset({"running", "restarting"})
"""States of tasks that may hold leases."""

CAUSE = (
    *("--dag-id", "{{ dag.dag_id }}"),
    *("--run-id", "{{ run_id }}"),
    *("--task-id", "{{ ti.task_id }}{{ '[%d]' % ti.map_index if ti.map_index >= 0 else '' }}"),
    *("--try-number", "{{ ti.try_number }}"),
)
"""Who runs a job, as arguments for its commits: environment variables do not reach a driver on a cluster."""


def tried() -> dict[str, Any]:
    """Retries of tasks, and callbacks on failure. Causes that pass (a database or Spark that is gone) have passed
    after a few minutes; others are reported."""
    return {
        "retries": 3,
        "retry_delay": settings.retry_delay(),
        "retry_exponential_backoff": 2.0,
        "max_retry_delay": timedelta(minutes=10),
        "on_failure_callback": [settings.on_failure, log_reason],
        "on_retry_callback": [log_reason],
    }


def _usual(*, tells: bool) -> dict[str, Any]:
    """Retries, pool and assets of a job, unless its DAG sets them."""
    return {
        **tried(),
        "pool": settings.pool(),
        "execution_timeout": timedelta(hours=6),
        "outlets": [MOVED] if tells else [],
    }


class ErrataJob(SparkSubmitOperator):
    """Runs jobs/<job>.py for the project. `about` is the label of a mapped task; `tells` whether its commits are
    events of assets; `if_behind`: skip it if no query is behind its streams."""

    template_fields = (*SparkSubmitOperator.template_fields, "arguments", "about")
    ui_color = "#e8eefc"
    operator_extra_links = (ReportLink(),)

    def __init__(
        self,
        *,
        job: str,
        arguments: Sequence[str] = (),
        about: str = "",
        tells: bool = True,
        if_behind: bool = False,
        **kwargs: Any,
    ) -> None:
        self.job, self.arguments, self.about, self.tells = job, list(arguments), about, tells
        self.if_behind = if_behind
        self._moved: tuple[str, list[AssetChange]] | None = None
        self._beside: beside.Job | None = None
        super().__init__(
            application=str(settings.HOUSE / "jobs" / f"{job}.py"),
            application_args=["--project", str(settings.project_path()), *CAUSE],
            conn_id=settings.connection(),
            name=f"errata {job}",
            # The job's own reason becomes the last line in a failed task's log.
            conf={"spark.log.level": "ERROR", **settings.spark_conf()},
            **{**_usual(tells=tells), **kwargs},
        )

    @classmethod
    def mapped(cls, *, tells: bool = True, **kwargs: Any) -> OperatorPartial:
        """The counterpart of `partial`, which would pass Airflow's defaults for pool, retries and outlets to the
        operator as if a person had chosen them."""
        return cls.partial(tells=tells, **{**_usual(tells=tells), **kwargs})

    def execute(self, context: Context) -> None:
        """Run the job; its commits are reported also if it fails, since they stay."""
        with airflow_errors():
            if self.if_behind and not self._queries_behind():
                self._tell_faults()
                raise AirflowSkipException("all queries are as far as their streams reach")
            *_, number = self.owner_of_leases.split("/")
            self._release(range(1, int(number)))
            self._release_ended(context)
            self.application_args = [*(self.application_args or []), *self.arguments]
            try:
                if (remote := settings.remote()) is not None:
                    self._run_beside(remote)
                else:
                    self._submit(context)
            except BaseException:
                self._release([int(number)])
                self._tell_after_failure(context)
                raise
            self._tell(context)
            self._tell_faults()

    def on_kill(self) -> None:
        """End the job and its Spark work, and release its leases."""
        if self._beside is not None:
            self._beside.terminate()
        if self._hook is not None:
            super().on_kill()
        self._release([int(self.owner_of_leases.rsplit("/", 1)[1])])

    def get_openlineage_facets_on_complete(self, _: Any) -> OperatorLineage[Any, Any] | None:
        """The inputs and outputs of the job."""
        if self._moved is None:
            return None
        from errata_airflow.lineage import lineage  # noqa: PLC0415 - its provider need not be installed

        return lineage(*self._moved)

    get_openlineage_facets_on_failure = get_openlineage_facets_on_complete

    @cached_property
    def owner_of_leases(self) -> str:
        """The owner of the job's leases, as its commits name it."""
        told = dict(zip(CAUSE[::2], (self.application_args or [])[2 : 2 + len(CAUSE)][1::2], strict=True))
        return "/".join(told[name] for name in ("--dag-id", "--run-id", "--task-id", "--try-number"))

    # Running a job.

    def _submit(self, context: Context) -> None:
        self._hook = hook = self._get_hook()
        if hook._is_yarn_cluster_mode and not hook._yarn_track_via_rm_api:
            self.durable = False  # else the provider asks for the resource manager's address
        code = 0
        try:
            super().execute(context)
        except AirflowException:
            process = hook._submit_sp
            if process is None or not process.returncode:
                raise
            code = process.returncode
        if code:  # raised here, so that the other error is not its context
            self._fail(code, hook._last_submit_log_lines)

    def _run_beside(self, remote: str) -> None:
        """Run the job as a process whose session is on the Connect server."""
        # Passed in the environment, since the address may contain a token.
        environ = {**os.environ, "ERRATA_SPARK_REMOTE": remote, "PYTHONUNBUFFERED": "1"}
        self.log.info("running jobs/%s.py against the Spark Connect server", self.job)
        lines: deque[str] = deque(maxlen=TAIL)
        arguments = [str(each) for each in self.application_args or []]
        self._beside = job = beside.start(self.application, arguments, environ)
        try:
            for line in job.said:
                lines.append(line.rstrip("\n"))
                self.log.info(lines[-1])
        except BaseException:
            job.terminate()
            raise
        finally:
            code = job.wait()
        if code:
            self._fail(code, lines)

    def _fail(self, code: int, lines: Iterable[str]) -> NoReturn:
        """Fail with the reason; without a retry if it waits for a person."""
        kind = AirflowFailException if code in FINAL else AirflowException
        raise kind(reason_of(code, list(lines), self.job))

    def _queries_behind(self) -> list[str]:
        from errata_airflow import work  # noqa: PLC0415 - DAGs are read without it

        return work.queries_behind(settings.project_path())

    # Reports after a try, and leases that are released.

    def _tell(self, context: Context) -> None:
        if not self.tells:
            return
        self._moved = project, found = self._find_moved(context)
        emit_asset_events(context["outlet_events"], project, found)
        for each in found:
            self.log.info("moved %s %s: %s", each.kind, each.name, dict(each.to_json))

    def _tell_after_failure(self, context: Context) -> None:
        """The same for a job that failed: errors here are logged and must not hide why it failed."""
        try:
            self._tell(context)
            self._tell_faults()
        except Exception as error:  # noqa: BLE001 - see above
            self.log.warning("what has been done could not be told: %s", error)

    def _tell_faults(self) -> None:
        """Call ERRATA_ON_FAULT for queries that have stopped, once for each, and once when they go on."""
        call = settings.on_fault() if self.tells else None
        if call is None:
            return
        from errata.answer.fault_notices import notify_faults  # noqa: PLC0415 - DAGs are read without it
        from errata.declare.site import open_site  # noqa: PLC0415

        try:
            with open_site(settings.project_path()) as site:
                notify_faults(site, self._heard(call))
        except Exception as error:  # noqa: BLE001 - the work is done; what is not told the next task tells
            self.log.error("what ERRATA_ON_FAULT names could not be told of a fault: %s", error)  # noqa: TRY400

    def _heard(self, call: Callable[[Mapping[str, Any]], object]) -> Callable[[Mapping[str, Any]], object]:
        def calling(told: Mapping[str, Any]) -> object:
            self.log.info("telling that query %s %s (fault %s)", told["query"], told["event"], told["fault_id"])
            return call(told)

        return calling

    def _find_moved(self, context: Context) -> tuple[str, list[AssetChange]]:
        from errata.declare.site import open_site  # noqa: PLC0415
        from errata.read.corrections import task_asset_changes  # noqa: PLC0415 - DAGs are read without it

        ti: Any = context["ti"]
        task_id = ti.task_id if ti.map_index < 0 else f"{ti.task_id}[{ti.map_index}]"
        with open_site(settings.project_path()) as site:
            return site.project.name, task_asset_changes(site, ti.dag_id, ti.run_id, task_id, ti.try_number)

    def _release_ended(self, context: Context) -> None:
        """Release the leases of tasks that no longer run, whoever holds them. A lease of a task unknown to this
        Airflow may be in use by another one, and expires by itself."""
        ask = getattr(context["ti"], "get_task_states", None)
        if ask is None:
            return
        from errata.catalog import leases  # noqa: PLC0415 - DAGs are read without it
        from errata.declare.site import open_site  # noqa: PLC0415

        with open_site(settings.project_path()) as site:
            for holder in leases.list_holders(site.catalog):
                state = _state(ask, holder.owner)
                if state is not None and state not in LIVE and leases.revoke_lease(site.catalog, holder):
                    self.log.info(
                        "gave back the lease on %s, held by %s, which is %s", holder.name, holder.description, state
                    )

    def _release(self, tries: Iterable[int]) -> None:
        """Release the leases of tries of this task, whose processes are dead."""
        numbers = list(tries)
        if not numbers:
            return
        from errata.catalog import leases  # noqa: PLC0415
        from errata.declare.site import open_site  # noqa: PLC0415
        from errata.errors import ErrataError  # noqa: PLC0415

        base = self.owner_of_leases.rsplit("/", 1)[0]
        try:
            with open_site(settings.project_path()) as site:
                for each in numbers:
                    for name in leases.release_owned(site.catalog, f"{base}/{each}"):
                        self.log.info("gave back the lease on %s", name)
        except ErrataError as error:
            # Leases expire by themselves; the reason of the failure matters more.
            self.log.warning("leases could not be given back: %s", error)


def _state(ask: Callable[..., Mapping[str, Any]], owner: str) -> str | None:
    """The state of the task that holds a lease; None if there is none, or Airflow does not say."""
    dag_id, _, rest = owner.partition("/")
    run_id, _, last = rest.rpartition("/")[0].rpartition("/")
    task_id, _, index = last.removesuffix("]").partition("[")
    if not (dag_id and run_id and task_id):
        return None
    try:
        found = ask(dag_id=dag_id, task_ids=[task_id], run_ids=[run_id])
    except (AirflowException, AirflowRuntimeError):
        return None
    state = found.get(run_id, {}).get(f"{task_id}_{index}" if index else task_id)
    return None if state is None else str(state)
