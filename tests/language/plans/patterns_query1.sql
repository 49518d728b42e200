-- Update patterns, query 1 (figure 8): two links joined on the source, one protocol of each.
SELECT a.time, a.src, a.dst, b.dst AS other_dst
FROM sliding(link1, '2000 seconds') AS a
JOIN sliding(link2, '2000 seconds') AS b ON a.src = b.src
WHERE a.protocol = 'ftp' AND b.protocol = 'ftp'
