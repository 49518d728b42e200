SELECT src, window_end, count(*) AS packets
FROM sliding(link1, '1 hour')
GROUP BY src, window(time, '1 minute')
