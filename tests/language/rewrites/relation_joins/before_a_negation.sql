SELECT n.symbol AS symbol, companies.sector AS sector
FROM negation(sliding(quotes, '1 hour'), sliding(quotes, '5 minutes'), 'symbol') AS n
JOIN companies ON n.symbol = companies.symbol
