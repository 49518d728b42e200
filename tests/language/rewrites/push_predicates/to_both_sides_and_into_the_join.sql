SELECT a.src AS src, b.dst AS dst
FROM sliding(link1, '1 hour') AS a, sliding(link2, '1 hour') AS b
WHERE a.src = b.src AND a.protocol = 'ftp' AND b.bytes > 10 AND a.bytes < b.bytes
