-- Query 1: pairs of ftp connections from one source over two links.
SELECT a.time AS first_time, b.time AS second_time, a.src, a.dst AS first_dst, b.dst AS second_dst
FROM sliding(link1, '2000 seconds') AS a
JOIN sliding(link2, '2000 seconds') AS b ON a.src = b.src
WHERE a.protocol = 'ftp' AND b.protocol = 'ftp'
