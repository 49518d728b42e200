"""Propagates changes: which results an arrival, an expiration or a revision touches, which rows make those results, how
they are recomputed, and what is published. May import every room up to archive.

The ways in:

    runs.run, runs.sweep                    all that is due: `errata run`, `errata sweep`, their jobs and DAGs
    range_replay.replay_range               a range of published results again: `errata replay`
    steps.StepList                          what is due, or waits: the others and `errata status` ask it
    run_plan.plan_run                       the steps of a run: `errata run --plan`
    sweep_plan.plan_sweep                   what a sweep would do: `errata sweep --plan`
    due_corrections.find_due_corrections    whether a sweep would find anything: the sensor
    fault_notices.notify_faults             calls for queries that have stopped

A run goes through `rounds` (queries in order), `turns` (one query), and the steps that `steps` lists from a
`catalog_view`. An evaluation: `due_evaluation` tells that it is due, `task` plans it, `evaluation` carries it out with
`inputs`, `advance` and `result_sink`, `evaluation_commit` commits it. A correction: `unread_changes` finds what results
lack, `correction_plan` plans it with `replay_sequence`, `correction` carries it out with `result_diff`,
`correction_commit` commits it. Queries that feed merged streams: `due_delivery` tells what a stream has not taken in
yet, `feed_deliveries` delivers it as `delivered_rows`, and `feedback` decides what a query need not say. Modules that
the sensor and status import load no Spark."""
