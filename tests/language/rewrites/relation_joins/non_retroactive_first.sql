SELECT q.symbol AS symbol, companies.sector AS sector, rates.rate AS rate
FROM sliding(quotes, '1 hour') AS q
JOIN companies ON q.symbol = companies.symbol
JOIN rates ON q.symbol = rates.currency
