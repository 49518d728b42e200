-- The average price of each company over five minutes, anew every minute.
SELECT symbol, window_start, window_end, avg(price) AS mean
FROM quotes
GROUP BY symbol, window(time, '5 minutes', '1 minute')
