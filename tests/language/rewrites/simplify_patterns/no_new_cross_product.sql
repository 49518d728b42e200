SELECT a.src AS src, b.dst AS dst, c.bytes AS bytes
FROM sliding(link1, '1 hour') AS a
JOIN sliding_rows(link2, 100) AS b ON a.src = b.src
JOIN sliding(link3, '1 hour') AS c ON b.dst = c.dst
