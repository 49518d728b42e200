"""One query's results corrected: what revisions touch, how that is worked out again, and what comes out different."""
