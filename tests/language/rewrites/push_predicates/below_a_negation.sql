SELECT n.src AS src, n.bytes AS bytes
FROM negation(sliding(link1, '1 hour'), sliding(link2, '1 hour'), 'src') AS n
WHERE n.src LIKE '10.%' AND n.bytes > 10
