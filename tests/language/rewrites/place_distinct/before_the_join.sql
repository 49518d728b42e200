SELECT DISTINCT a.src AS src, b.src AS there
FROM sliding(link1, '1 hour') AS a JOIN sliding(link2, '1 hour') AS b ON a.src = b.src
