-- Update patterns, query 1, its second variant: the selections stand below the join.
SELECT a.src, a.dst, b.dst AS other_dst
FROM (SELECT src, dst FROM sliding(link1, '2000 seconds') WHERE protocol = 'telnet') AS a
JOIN (SELECT src, dst FROM sliding(link2, '2000 seconds') WHERE protocol = 'telnet') AS b ON a.src = b.src
