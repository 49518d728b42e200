SELECT src, dst
FROM negation(link1, (SELECT src, dst FROM sliding(link2, '1 hour')), 'src', 'dst') AS n
WHERE n.bytes > 100
