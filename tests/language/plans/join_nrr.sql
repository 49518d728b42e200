SELECT time, symbol, price * rate AS price
FROM quotes
JOIN rates ON quotes.currency = rates.currency
