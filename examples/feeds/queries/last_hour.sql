-- The highest price of each company in the last hour, anew every minute.
SELECT symbol, window_end, max(price) AS highest, count(*) AS quotes
FROM started
GROUP BY symbol, window(time, '1 hour', '1 minute')
