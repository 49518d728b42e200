-- Query 5, figure 6 left: the join of the first and the third link below, the negation above.
SELECT time, ftp_time, src
FROM negation(
  (
    SELECT a.time, c.time AS ftp_time, a.src
    FROM sliding(link1, '2000 seconds') AS a
    JOIN sliding(link3, '2000 seconds') AS c ON a.src = c.src
    WHERE c.protocol = 'ftp'
  ),
  sliding(link2, '2000 seconds'),
  'src'
) AS n
