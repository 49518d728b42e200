SELECT q.time, q.symbol, c.sector
FROM quotes AS q
JOIN companies AS c ON q.symbol = c.symbol
