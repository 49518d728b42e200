SELECT window_start, window_end, count(*) AS ticks, event_time() AS number
FROM ticks
GROUP BY window(number, 100, 10)
