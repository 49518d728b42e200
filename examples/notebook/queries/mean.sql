-- The average price of each company in every minute.
SELECT symbol, window_start, avg(price) AS mean
FROM quotes
GROUP BY symbol, window(time, '1 minute')
