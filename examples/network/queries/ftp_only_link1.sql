-- Query 5, figure 6 right: the negation of two links below, the join with the third above.
SELECT n.time, c.time AS ftp_time, n.src
FROM negation(sliding(link1, '2000 seconds'), sliding(link2, '2000 seconds'), 'src') AS n
JOIN sliding(link3, '2000 seconds') AS c ON n.src = c.src
WHERE c.protocol = 'ftp'
