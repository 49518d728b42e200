SELECT n.src AS src, c.dst AS dst
FROM negation(sliding(link1, '2000 seconds'), sliding(link2, '20 seconds'), 'src') AS n
JOIN sliding(link3, '2000 seconds') AS c ON n.src = c.src
WHERE c.protocol = 'ftp'
