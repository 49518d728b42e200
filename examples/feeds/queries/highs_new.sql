-- The same by another plan: the companies in two parts.
WITH parts AS (
  SELECT time, symbol, price FROM ticks WHERE symbol < 'M'
  UNION ALL
  SELECT time, symbol, price FROM ticks WHERE symbol >= 'M'
)
SELECT window_start AS minute, symbol, max(price) AS highest, count(*) AS ticks
FROM parts
GROUP BY symbol, window(time, '1 minute')
