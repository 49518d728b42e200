-- Update patterns, query 5, on the left of figure 6: the join below, the negation above.
SELECT src, dst, other_dst
FROM negation(
  (
    SELECT a.src, a.dst, c.dst AS other_dst
    FROM sliding(link1, '2000 seconds') AS a
    JOIN sliding(link3, '2000 seconds') AS c ON a.src = c.src
    WHERE c.protocol = 'ftp'
  ),
  sliding(link2, '2000 seconds'),
  'src'
) AS n
