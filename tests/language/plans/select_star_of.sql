SELECT b.*, a.bytes AS first_bytes
FROM link1 AS a
JOIN link2 AS b ON a.src = b.src
