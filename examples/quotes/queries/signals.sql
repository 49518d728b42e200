-- Every minute: buy while the last minute's average is above that of the last five.
WITH minute AS (
  SELECT window_end AS time, symbol, avg(price) AS mean
  FROM quotes
  WHERE symbol = 'IBM'
  GROUP BY symbol, window(time, '1 minute')
), five AS (
  SELECT window_end AS time, symbol, avg(price) AS mean
  FROM quotes
  WHERE symbol = 'IBM'
  GROUP BY symbol, window(time, '5 minutes', '1 minute')
)
SELECT minute.time, minute.symbol, CASE WHEN minute.mean > five.mean THEN 'BUY' ELSE 'SELL' END AS signal
FROM minute JOIN five ON minute.time = five.time AND minute.symbol = five.symbol
