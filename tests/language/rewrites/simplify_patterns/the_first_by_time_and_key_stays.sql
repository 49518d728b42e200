SELECT first(a.dst) AS here, first(b.dst) AS there
FROM sliding_rows(link1, 100) AS a JOIN sliding(link2, '1 hour') AS b ON a.src = b.src
