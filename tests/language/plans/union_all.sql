SELECT time, src FROM link1
UNION ALL
SELECT time, src FROM link2
UNION ALL
SELECT time, src FROM link3
