SELECT symbol, window_no, avg(price) AS price, event_time() AS time
FROM quotes
GROUP BY symbol, row_window(10)
