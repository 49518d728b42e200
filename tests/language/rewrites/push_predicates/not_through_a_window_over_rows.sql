SELECT a.src AS src
FROM sliding_rows(link1, 100) AS a JOIN sliding(link2, '1 hour') AS b ON a.src = b.src
WHERE a.protocol = 'ftp' AND b.protocol = 'ftp'
