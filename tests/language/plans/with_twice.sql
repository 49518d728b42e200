WITH ftp AS (SELECT src, dst FROM sliding(link1, '1 hour') WHERE protocol = 'ftp')
SELECT a.src, b.dst
FROM ftp AS a
JOIN ftp AS b ON a.dst = b.src
