"""Corrections on their way to published answers: which results revisions touch, how these are worked out anew, and what
of the published answer that changes. `amend` lays the one against the other, on Arrow alone; nothing here commits."""
