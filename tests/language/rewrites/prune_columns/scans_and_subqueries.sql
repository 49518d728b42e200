SELECT x.src AS src
FROM (SELECT src, dst, upper(protocol) AS protocol, bytes FROM sliding(link1, '1 hour')) AS x
WHERE x.bytes > 10
