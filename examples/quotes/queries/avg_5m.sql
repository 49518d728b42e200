-- The average price of each company in every five minutes.
SELECT symbol, window_start, avg(price) AS mean
FROM quotes
GROUP BY symbol, window(time, '5 minutes')
