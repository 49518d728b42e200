SELECT a.symbol, a.high
FROM (
  SELECT q.symbol, max(q.price) AS high
  FROM (SELECT symbol, price FROM quotes WHERE volume > 0) AS q
  GROUP BY q.symbol
) AS a
WHERE a.high > 100
