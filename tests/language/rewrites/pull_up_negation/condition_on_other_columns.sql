SELECT n.src AS src, c.most AS most
FROM negation(sliding(link1, '2000 seconds'), sliding(link2, '20 seconds'), 'src') AS n
JOIN (SELECT src, max(bytes) AS most FROM sliding(link3, '2000 seconds') GROUP BY src) AS c
ON n.src = c.src AND n.bytes < c.most
