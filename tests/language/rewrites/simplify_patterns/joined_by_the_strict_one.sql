SELECT a.src AS src, s.dst AS dst, b.bytes AS bytes
FROM sliding(link1, '1 hour') AS a JOIN sliding_rows(link2, 10) AS s ON a.src = s.src JOIN link3 AS b ON s.dst = b.dst
