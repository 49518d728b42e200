SELECT q.symbol AS symbol, companies.sector AS sector, p.price AS price
FROM sliding(quotes, '1 hour') AS q
JOIN companies ON q.symbol = companies.symbol
JOIN sliding(quotes, '5 minutes') AS p ON companies.sector = p.symbol
