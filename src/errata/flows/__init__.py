"""One function per job: the only place where the capabilities meet."""
