"""All that is due done, query after query, each after those that it reads: runs, sweeps and replays."""
