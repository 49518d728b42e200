-- Replay, Q2: the 5-minute average price of each company, every minute.
SELECT symbol, window_start, window_end, avg(price) AS price
FROM quotes
GROUP BY symbol, window(time, '5 minutes', '1 minute')
