SELECT DISTINCT i.src AS src
FROM (SELECT src FROM sliding(link1, '1 hour') INTERSECT SELECT src FROM sliding(link2, '1 hour')) AS i
