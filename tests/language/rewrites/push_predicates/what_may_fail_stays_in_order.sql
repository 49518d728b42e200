SELECT y.src AS src
FROM (SELECT x.src AS src, x.bytes AS bytes FROM (SELECT src, bytes FROM link1 WHERE 1000 / bytes > 2) AS x WHERE x.src = 'x') AS y
WHERE 1000 / y.bytes > 3
