SELECT a.symbol, a.price, count(*) AS quotes
FROM sliding(avg_5m, '1 hour') AS a
JOIN sliding(quotes, '5 minutes') AS q USING (symbol)
GROUP BY a.symbol, a.price
