-- Replay, Q1: the 5-minute average price of each company, every 5 minutes.
SELECT symbol, window_start, window_end, avg(price) AS price
FROM quotes
GROUP BY symbol, window(time, '5 minutes')
