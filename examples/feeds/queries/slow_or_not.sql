-- How many quotes there are in every minute, whichever way they came.
SELECT window_start, count(*) AS quotes
FROM routed
GROUP BY window(time, '1 minute')
