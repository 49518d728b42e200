SELECT u.src AS src
FROM (SELECT src, bytes, time, id FROM link1 UNION ALL SELECT dst, bytes, time, id FROM link2) AS u
