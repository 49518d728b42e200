SELECT i.src AS src
FROM (SELECT src FROM sliding(link1, '1 hour') INTERSECT SELECT dst FROM sliding(link2, '1 hour')) AS i
JOIN (SELECT DISTINCT src FROM link3) AS d ON i.src = d.src
WHERE i.src IS NOT NULL AND d.src <> 'x'
