SELECT symbol, window_end, price
FROM avg_5m
WHERE price > 100
