SELECT x.src AS src FROM (SELECT src, 1000 / bytes AS part FROM link1) AS x WHERE x.part > 2 AND x.src = 'x'
