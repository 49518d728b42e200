SELECT n.symbol AS symbol, rates.rate AS rate
FROM negation(sliding(quotes, '1 hour'), sliding(quotes, '5 minutes'), 'symbol') AS n
JOIN rates ON n.symbol = rates.currency
