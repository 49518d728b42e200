SELECT window_end, count(*) AS packets
FROM (SELECT time, src FROM link1 UNION ALL SELECT time, src FROM link2) AS b
GROUP BY window(time, '1 minute')
