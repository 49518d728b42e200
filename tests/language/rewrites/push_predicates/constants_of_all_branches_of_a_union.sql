SELECT u.src AS src, c.bytes AS bytes
FROM (SELECT src FROM link1 WHERE src = 'x' UNION ALL SELECT dst FROM link2 WHERE dst = 'y') AS u
JOIN link3 AS c ON u.src = c.src
