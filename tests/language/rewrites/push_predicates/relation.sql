SELECT q.symbol AS symbol, companies.sector AS sector
FROM sliding(quotes, '1 hour') AS q JOIN companies ON q.symbol = companies.symbol
WHERE companies.sector LIKE 'I%' AND q.price > 100
