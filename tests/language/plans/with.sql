WITH ftp AS (SELECT src, dst, time FROM link1 WHERE protocol = 'ftp'),
  busy AS (SELECT src, count(*) AS packets FROM ftp GROUP BY src HAVING packets > 10)
SELECT f.src, f.dst, b.packets
FROM ftp AS f
JOIN busy AS b ON f.src = b.src
