-- The highest price of each company in every minute, and how many prices there were.
SELECT window_start AS minute, symbol, max(price) AS highest, count(*) AS ticks
FROM ticks
GROUP BY symbol, window(time, '1 minute')
