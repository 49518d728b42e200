SELECT symbol, window.end AS until, max(price) AS high
FROM avg_5m
GROUP BY symbol, window(event_time(), '1 hour')
