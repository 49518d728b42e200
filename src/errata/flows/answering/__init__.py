"""One query taken as far as its streams reach: what is due, what it reads, and what is published of it."""
