SELECT src, bytes FROM link1
UNION ALL
SELECT dst, 0.5D FROM link2
