SELECT a.src AS src, b.dst AS dst, c.bytes AS bytes
FROM negation(sliding(link1, '1 hour'), sliding(link2, '1 hour'), 'src') AS a
JOIN sliding(link2, '30 minutes') AS b ON a.src = b.src
JOIN link3 AS c ON b.src = c.src
