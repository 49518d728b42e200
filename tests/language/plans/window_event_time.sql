SELECT window.start AS since, window.end AS until, event_time() AS time, count(*) AS packets
FROM link1
GROUP BY window(event_time(), '10 minutes', '1 minute')
