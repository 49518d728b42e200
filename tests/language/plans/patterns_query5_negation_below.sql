-- Update patterns, query 5, on the right of figure 6: the negation below, the join above.
SELECT n.src, n.dst, c.dst AS other_dst
FROM negation(sliding(link1, '2000 seconds'), sliding(link2, '2000 seconds'), 'src') AS n
JOIN sliding(link3, '2000 seconds') AS c ON n.src = c.src
WHERE c.protocol = 'ftp'
