SELECT u.src AS src
FROM (SELECT src, bytes FROM sliding(link1, '1 hour') UNION ALL SELECT dst, bytes FROM sliding(link2, '1 hour')) AS u
WHERE u.src = 'x'
