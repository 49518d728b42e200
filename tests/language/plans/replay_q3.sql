-- Replay, Q3: BUY when the 1-minute average price of IBM exceeds the 5-minute average, else SELL.
WITH ibm AS (SELECT time, price FROM quotes WHERE symbol = 'IBM')
SELECT
  short.window_end AS time,
  CASE WHEN short.price > long.price THEN 'BUY' ELSE 'SELL' END AS command
FROM (SELECT window_end, avg(price) AS price FROM ibm GROUP BY window(time, '1 minute')) AS short
JOIN (SELECT window_end, avg(price) AS price FROM ibm GROUP BY window(time, '5 minutes', '1 minute')) AS long
  ON short.window_end = long.window_end
