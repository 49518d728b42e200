SELECT x.src AS src, x.kilobytes AS kilobytes
FROM (SELECT src, bytes AS kilobytes, protocol FROM sliding(link1, '1 hour')) AS x
WHERE x.protocol = 'ftp' AND x.kilobytes > 10
