SELECT DISTINCT a.src AS src
FROM sliding(link1, '1 hour') AS a JOIN sliding(link2, '1 hour') AS b ON a.src = b.src AND a.bytes < b.bytes
