SELECT s.src AS src, a.dst AS dst, b.dst AS other
FROM sliding_rows(link1, 10) AS s JOIN link2 AS a ON s.src = a.src JOIN link3 AS b ON s.dst = b.dst
