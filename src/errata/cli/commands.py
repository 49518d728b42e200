"""All commands by name: what each is for, in one line, and the module and function that it is.

Help is printed from this alone.
"""

from __future__ import annotations

COMMANDS = {
    "init": ("Begin a project with a commented errata.yaml.", "errata.cli.init:init"),
    "apply": ("Show what errata.yaml would change, and do it.", "errata.cli.apply:apply"),
    "ingest": ("Take files into a stream's archive.", "errata.cli.ingest:ingest"),
    "heartbeat": ("Say up to where a feed is stable.", "errata.cli.heartbeat:heartbeat"),
    "run": ("Do all that is due: take in, evaluate.", "errata.cli.run:run"),
    "revise": ("Take corrections in, and apply what is pending.", "errata.cli.revise:revise_command"),
    "sweep": ("Correct the results that corrections invalidate.", "errata.cli.sweep:sweep"),
    "replay": ("Work a range of a query's results out again.", "errata.cli.sweep:replay"),
    "undo": ("Take back what a batch did.", "errata.cli.undo:undo"),
    "results": ("Read the published answer of a query.", "errata.cli.results:results"),
    "changes": ("Tell how a query's results have changed.", "errata.cli.results:changes"),
    "why": ("Tell a result's story, and what made it.", "errata.cli.why:why"),
    "ask": ("Answer a query once, as of any time.", "errata.cli.ask:ask"),
    "invoke": ("Give the current answer of a registered query.", "errata.cli.invoke:invoke"),
    "explain": ("Tell what a query does, and draw its plan.", "errata.cli.explain:explain"),
    "history": ("Show every version that a row has had.", "errata.cli.history:show_history"),
    "log": ("List commits: when, who, and what they did.", "errata.cli.log:log"),
    "status": ("Show how streams stand, and what waits.", "errata.cli.status:status"),
    "leases": ("Show who is at work on what; release it.", "errata.cli.log:leases"),
    "doctor": ("See whether archives are whole, and mend them.", "errata.cli.doctor:doctor"),
    "serve": ("Serve registered queries over HTTP.", "errata.cli.serve:serve"),
    "demo": ("See it all at work, in under three minutes.", "errata.cli.demo:demo"),
    "bench": ("Measure Errata beside plain Spark.", "errata.cli.bench:bench"),
}

GROUPS = {
    "generate": (
        "Write made-up feeds to try things with.",
        {
            "quotes": ("Stock quotes, with all that goes wrong.", "errata.cli.bench:quotes"),
            "feeds": ("Several feeds that say the same, to merge.", "errata.cli.bench:feeds"),
        },
    ),
    "archive": (
        "Look into archives, read them, age them.",
        {
            "ls": ("List a stream's buckets, and draw them.", "errata.cli.archive:ls"),
            "stats": ("Show how much the archives hold.", "errata.cli.archive:stats"),
            "scan": ("Read rows of an archive as known at a commit.", "errata.cli.scan:scan"),
            "age-out": ("Drop buckets that are past the retention.", "errata.cli.age_out:age_out"),
            "compact": ("Work corrections in, and merge small buckets.", "errata.cli.compact:compact"),
            "vacuum": ("Keep copies as asked; remove what nobody needs.", "errata.cli.vacuum:vacuum"),
            "copies": ("Show copies, who asked, what vacuum does.", "errata.cli.copies:show_copies"),
        },
    ),
    "query": (
        "Register queries to be invoked, and list them.",
        {
            "register": ("Register queries, and print their handles.", "errata.cli.query:register_query"),
            "unregister": ("Take a registered query back.", "errata.cli.query:unregister_query"),
            "list": ("List registered queries, and what they cost.", "errata.cli.query:list_queries"),
            "show": ("Show a registered query.", "errata.cli.query:show_query"),
            "strategy": ("Change what is kept for a query.", "errata.cli.query:change_strategy"),
            "view": ("Make registered queries views of PostgreSQL, too.", "errata.cli.view:view_registered"),
            "materialise": ("Match what has not been matched yet.", "errata.cli.query:materialise_queries"),
        },
    ),
    "token": (
        "Say who may ask over HTTP: make, list, revoke tokens.",
        {
            "create": ("Make a token for a user, and show it once.", "errata.cli.token:create"),
            "list": ("List tokens, their users and quotas.", "errata.cli.token:show_tokens"),
            "revoke": ("End a token.", "errata.cli.token:revoke"),
        },
    ),
    "feeds": (
        "See how merged feeds stand; attach, detach, trust.",
        {
            "ls": ("Show who leads, lags, is missing or suspect.", "errata.cli.feeds:ls"),
            "disagreements": ("Show what feeds disagree about.", "errata.cli.feeds:disagreements"),
            "attach": ("Merge a feed again that was detached.", "errata.cli.feeds:attach"),
            "detach": ("Merge a feed no longer; what it said stays.", "errata.cli.feeds:detach"),
            "trust": ("Trust a feed again that is suspect.", "errata.cli.feeds:trust"),
        },
    ),
    "quarantine": (
        "See rows and files not taken in; retry or drop them.",
        {
            "ls": ("List what is in quarantine, and why it is there.", "errata.cli.quarantine:ls"),
            "retry": ("Take what is in quarantine in again.", "errata.cli.retry:retry"),
            "drop": ("Give what is in quarantine up for good.", "errata.cli.quarantine:drop"),
        },
    ),
}

COMMAND_ORDER = (
    "init",
    "apply",
    "generate",
    "ingest",
    "heartbeat",
    "run",
    "revise",
    "sweep",
    "replay",
    "undo",
    "feeds",
    "quarantine",
    "archive",
    "results",
    "changes",
    "why",
    "ask",
    "query",
    "invoke",
    "serve",
    "token",
    "explain",
    "history",
    "log",
    "status",
    "leases",
    "doctor",
    "bench",
    "demo",
)
