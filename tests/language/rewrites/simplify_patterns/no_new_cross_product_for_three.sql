SELECT s.src AS src, a.dst AS dst, b.bytes AS bytes
FROM sliding_rows(link1, 10) AS s
JOIN sliding(link2, '1 hour') AS a ON s.src = a.src
JOIN link3 AS b ON greatest(s.bytes, a.bytes) = b.bytes
