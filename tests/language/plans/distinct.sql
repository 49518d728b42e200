SELECT DISTINCT src, bytes > 1000 AS long
FROM link1
