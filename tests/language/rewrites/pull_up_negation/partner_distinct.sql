SELECT n.dst AS dst, c.src AS src
FROM negation(sliding(link1, '2000 seconds'), sliding(link2, '20 seconds'), 'src') AS n
JOIN (SELECT DISTINCT src FROM sliding(link3, '2000 seconds')) AS c ON n.src = c.src
