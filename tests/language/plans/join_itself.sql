SELECT a.src, link1.dst
FROM link1
JOIN link1 AS a ON a.dst = link1.src
